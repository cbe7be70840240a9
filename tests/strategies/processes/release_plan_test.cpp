// What a process gives to others, beside what its guarantee keeps; and in which container it says it is.
#include "strategies/processes/release_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "strategies/processes/container.h"

namespace spillway {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Holding pages(uint64_t held, uint64_t cached) {
  return {.held_bytes = held * kMiB, .cached_bytes = cached * kMiB, .framework = {}};
}

Holding framework(uint64_t held, uint64_t used) {
  return {.framework = FrameworkMemory{held * kMiB, used * kMiB, (held - used) * kMiB}};
}

TEST(Giving, WithoutAGuaranteeAllThatIsCachedGoes) {
  for (const Holding& holding : {pages(100, 60), framework(100, 40), Holding{}}) {
    const ReleasePlan gift = release_plan_of(holding, 0);
    EXPECT_TRUE(gift.framework);
    EXPECT_TRUE(gift.every_page);
  }
}

TEST(Giving, PagesGoDownToTheGuarantee) {
  EXPECT_TRUE(release_plan_of(pages(100, 60), 40 * kMiB).every_page);
  const ReleasePlan some = release_plan_of(pages(100, 60), 50 * kMiB);
  EXPECT_FALSE(some.every_page);
  EXPECT_EQ(some.bytes, 50 * kMiB);
  EXPECT_EQ(release_plan_of(pages(100, 60), 51 * kMiB + 1).bytes, 48 * kMiB) << "whole pages";
}

TEST(Giving, BelowItsGuaranteeAProcessGivesNothing) {
  for (const uint64_t guarantee : {100, 101, 1 << 20}) {
    const ReleasePlan gift = release_plan_of(pages(100, 60), guarantee * kMiB);
    EXPECT_FALSE(gift.every_page);
    EXPECT_EQ(gift.bytes, 0u);
    EXPECT_FALSE(release_plan_of(framework(100, 40), guarantee * kMiB).framework);
  }
}

TEST(Giving, TheFrameworkGivesAllOrNothing) {
  EXPECT_TRUE(release_plan_of(framework(100, 40), 40 * kMiB).framework);
  EXPECT_FALSE(release_plan_of(framework(100, 40), 41 * kMiB).framework);
}

TEST(Giving, WhatIsNotKnownIsNotGivenUnderAGuarantee) {
  EXPECT_FALSE(release_plan_of(Holding{}, kMiB).framework);
}

TEST(Giving, WhatIsSpareIsWhatWouldBeGiven) {
  EXPECT_EQ(spare_of(pages(100, 60), 0, true), 60 * kMiB);
  EXPECT_EQ(spare_of(pages(100, 60), 50 * kMiB, true), 50 * kMiB);
  EXPECT_EQ(spare_of(pages(100, 60), 100 * kMiB, true), 0u);
  EXPECT_EQ(spare_of(framework(100, 40), 40 * kMiB, true), 60 * kMiB);
  EXPECT_EQ(spare_of(framework(100, 40), 41 * kMiB, true), 0u) << "all or nothing";
  EXPECT_EQ(spare_of(framework(100, 40), 0, false), 0u) << "on another device it may not";
  EXPECT_EQ(spare_of(Holding{}, 0, true), 0u);
  Holding in_part = framework(100, 40);
  in_part.framework->releasable_bytes = 10 * kMiB;
  EXPECT_EQ(spare_of(in_part, 0, true), 10 * kMiB) << "the rest is in segments that are in use";
  Holding both = framework(100, 40);
  both.held_bytes = both.cached_bytes = 50 * kMiB;
  EXPECT_EQ(spare_of(both, 0, true), 110 * kMiB);
}

TEST(Giving, TheFrameworkGivesOnEveryDeviceOrOnNone) {
  const Holding idle = framework(100, 40), busy = framework(50, 50), poor = framework(30, 20);
  const std::vector<Holding> fine{idle, busy}, not_fine{idle, poor};
  EXPECT_TRUE(framework_may_give(fine, 40 * kMiB)) << "the second has nothing to lose";
  EXPECT_FALSE(framework_may_give(not_fine, 40 * kMiB));
  EXPECT_TRUE(framework_may_give(not_fine, 0));
}

TEST(Giving, BothAllocatorsCountForTheGuarantee) {
  Holding both = framework(100, 40);
  both.held_bytes = 50 * kMiB;
  both.cached_bytes = 50 * kMiB;
  const ReleasePlan gift = release_plan_of(both, 70 * kMiB);
  EXPECT_TRUE(gift.framework) << "150 held, 60 given, 90 left";
  EXPECT_EQ(gift.bytes, 20 * kMiB);
}

TEST(Container, IsFoundInTheKernelsFiles) {
  const std::string id(64, 'a');
  EXPECT_EQ(container_in("0::/docker/" + id + "\n"), "aaaaaaaaaaaa");
  EXPECT_EQ(container_in("0::/system.slice/docker-" + id + ".scope\n"), "aaaaaaaaaaaa");
  EXPECT_EQ(container_in("9 8 0:1 /var/lib/docker/containers/" + id + "/hostname /etc/hostname rw"),
            "aaaaaaaaaaaa");
  EXPECT_EQ(container_in("0::/user.slice/user-1000.slice\n"), "");
  EXPECT_EQ(container_in("0::/docker/short"), "");
  EXPECT_EQ(container_in("/docker/overlay2/" + id + "/docker/" + std::string(63, 'b')), "");
  EXPECT_EQ(container_in(""), "");
}

}  // namespace
}  // namespace spillway
