// The bar that every command draws.
#include <gtest/gtest.h>

#include "tools/spillway/look.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

size_t count_of(const std::string& text, const char* mark) {
  size_t count = 0;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) ++count;
  return count;
}

TEST(MemoryBar, HasAsManyMarksAsEachHasOfTheCard) {
  EXPECT_EQ(
      memory_bar({{Mark::kInUse, "in use", 5 * kGiB},
                  {Mark::kCached, "cached", 2 * kGiB},
                  {Mark::kOutside, "outside", kGiB},
                  {Mark::kFree, "free", 2 * kGiB}}),
      "████████████████████░░░░░░░░▒▒▒▒········  █ in use 5.00 GiB, ░ cached 2.00 GiB, ▒ outside 1.00 GiB, · "
      "free 2.00 GiB");
}

TEST(MemoryBar, WhatIsThereIsSeenHoweverSmall) {
  const std::string bar = memory_bar(
      {{Mark::kInUse, "in use", 1}, {Mark::kCached, "cached", 0}, {Mark::kFree, "free", 40 * kGiB}});
  EXPECT_EQ(count_of(bar, "█"), 2U) << "one in the bar, one before its name";
  EXPECT_EQ(count_of(bar, "░"), 0U);
  EXPECT_EQ(count_of(bar, "·"), 40U);
}

TEST(MemoryBar, NothingHasNoBarAndMuchDoesNotWrap) {
  EXPECT_EQ(memory_bar({}), "");
  EXPECT_EQ(memory_bar({{Mark::kInUse, "in use", 0}}), "");
  const std::string bar =
      memory_bar({{Mark::kInUse, "in use", UINT64_MAX}, {Mark::kFree, "free", UINT64_MAX}});
  EXPECT_EQ(count_of(bar, "█"), 21U);
}

TEST(Share, ASmallOneIsNotNone) {
  EXPECT_EQ(share_text(1, 3), "33%");
  EXPECT_EQ(share_text(1, 1000), "<1%");
  EXPECT_EQ(share_text(0, 1000), "0%");
  EXPECT_EQ(share_text(1, 0), "");
}

}  // namespace
}  // namespace spillway::tools
