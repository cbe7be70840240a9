// When memory comes back from another tier, and how much of the device it may take: the history alone, on an
// order of its own.
#include "allocator/tiers/choice/need_history.h"

#include <gtest/gtest.h>

namespace spillway::testing {
namespace {

constexpr uint64_t kQuiet = 10'000;  // orders, after a single spill

TEST(NeedHistory, IsQuietLongAfterTheLastSpill) {
  NeedHistory history;
  history.moved_out(1'000, 10);
  EXPECT_FALSE(history.quiet(1'000));
  EXPECT_FALSE(history.quiet(1'000 + kQuiet - 1));
  EXPECT_TRUE(history.quiet(1'000 + kQuiet));
}

TEST(NeedHistory, SpillsThatRecurLateKeepItBusyForSeveralOfTheirIntervals) {
  NeedHistory history;
  history.moved_out(1'000, 10);
  history.moved_out(9'000, 10);
  EXPECT_FALSE(history.quiet(9'000 + 4 * 8'000 - 1));
  EXPECT_TRUE(history.quiet(9'000 + 4 * 8'000));
}

TEST(NeedHistory, PostponesAsASpillWould) {
  NeedHistory history;
  history.moved_out(1'000, 10);
  history.postpone(5'000);
  EXPECT_FALSE(history.quiet(5'000 + kQuiet - 1));
  EXPECT_TRUE(history.quiet(5'000 + kQuiet));
}

TEST(NeedHistory, RemembersThePeakOfThisStretchAndTheOneBefore) {
  NeedHistory history;
  history.moved_out(1'000, 10);
  history.note(2'000, 90);
  EXPECT_EQ(history.peak(), 90u);
  history.note(1'000 + kQuiet, 20);  // a new stretch
  EXPECT_EQ(history.peak(), 90u);
  history.note(1'000 + 2 * kQuiet, 30);  // and another
  EXPECT_EQ(history.peak(), 30u);
}

TEST(NeedHistory, WhatCameBackIsNeededFromThenOn) {
  NeedHistory history;
  history.moved_out(1'000, 10);
  history.moved_in(7);
  EXPECT_EQ(history.peak(), 17u);
}

TEST(NeedHistory, ASpillForgetsWhatWasNeededBefore) {
  NeedHistory history;
  history.moved_out(1'000, 10);
  history.note(2'000, 90);
  history.moved_out(3'000, 40);
  EXPECT_EQ(history.peak(), 40u);
}

}  // namespace
}  // namespace spillway::testing
