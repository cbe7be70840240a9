// The sampler of stacks: its estimates are unbiased, and its cost is bounded.
#include "strategies/sites/sampler.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <thread>

namespace spillway {
namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

// The countdown is a thread's own: each test has a fresh one.
void in_a_thread(const std::function<void()>& work) {
  std::thread(work).join();
}

uint64_t stands_for(Sampler& sampler, uint64_t bytes) {
  return Sampler::due(bytes) ? sampler.take(bytes) : 0;
}

TEST(Sampler, SumsAreUnbiasedForEverySize) {
  in_a_thread([] {
    Sampler sampler(kMiB);
    std::mt19937 random(1);
    std::map<uint64_t, double> allocated, estimated;
    uint64_t chosen = 0;
    for (int i = 0; i < 400'000; ++i) {
      static constexpr uint64_t kSizes[] = {16 * kKiB, 256 * kKiB, kMiB, 20 * kMiB};
      const uint64_t bytes = kSizes[random() % 4];
      const uint64_t weight = stands_for(sampler, bytes);
      allocated[bytes] += static_cast<double>(bytes);
      estimated[bytes] += static_cast<double>(weight);
      chosen += weight != 0 ? 1 : 0;
    }
    for (const auto& [bytes, sum] : allocated)
      EXPECT_NEAR(estimated[bytes] / sum, 1.0, bytes < kMiB ? 0.1 : 0.02) << bytes;
    EXPECT_GT(chosen, 160'000) << "every large block, most of those of the interval's size";
    EXPECT_LT(chosen, 240'000);
  });
}

Sampler::Clocks shown{1'000'000'000, 1'000'000'000};
Sampler::Clocks now() noexcept {
  return shown;
}

TEST(Sampler, IntervalNullTakesEveryBlockAsItIs) {
  in_a_thread([] {
    Sampler sampler(0);
    for (const uint64_t bytes : {uint64_t{1}, 512 * kKiB, 3 * kMiB})
      EXPECT_EQ(stands_for(sampler, bytes), bytes);
    for (int i = 0; i < 2000; ++i) sampler.spent(1'000'000, now);
    EXPECT_EQ(sampler.interval_bytes(), 0u) << "all means all, whatever it costs";
  });
}

TEST(Sampler, WhoRestsIsNeverDue) {
  in_a_thread([] {
    Sampler::rest();
    for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Sampler::due(uint64_t{1} << 40));
  });
}

TEST(Sampler, CostsMoreThanItsShareItSamplesLess) {
  Sampler sampler(kMiB);
  const auto window = [&](uint64_t stack_ns, uint64_t between_ns) {
    for (int i = 0; i < 256; ++i) {
      shown.wall_ns += between_ns;
      shown.process_ns += 8 * between_ns;  // eight threads
      sampler.spent(stack_ns, now);
    }
  };
  window(2'000, 20'000);
  window(2'000, 20'000);  // a tenth of the time
  EXPECT_GE(sampler.interval_bytes(), 2 * kMiB);
  for (int i = 0; i < 40; ++i) window(2'000, 20'000);
  EXPECT_EQ(sampler.interval_bytes(), Sampler::kMostInterval) << "and no further";
  window(2'000, 900'000);
  EXPECT_EQ(sampler.interval_bytes(), Sampler::kMostInterval) << "within its share nothing changes";
  for (int i = 0; i < 40; ++i) window(2'000, 5'000'000);
  EXPECT_EQ(sampler.interval_bytes(), kMiB) << "it comes back, and not below what was asked for";
}

TEST(Sampler, TimeInWhichTheProcessWaitedDoesNotPayForStacks) {
  Sampler sampler(kMiB);
  for (int i = 0; i < 4 * 256; ++i) {
    shown.wall_ns += 1'000'000;
    shown.process_ns += 20'000;
    sampler.spent(2'000, now);
  }
  EXPECT_GE(sampler.interval_bytes(), 4 * kMiB);
}

}  // namespace
}  // namespace spillway
