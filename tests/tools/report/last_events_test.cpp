// What happened last before a failure, folded into what it means.
#include "tools/spillway/history/last_events.h"

#include <gtest/gtest.h>

#include "tools/spillway/report/text/last_events_text.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class LastEventsTest : public ::testing::Test {
 protected:
  LastEventsTest() {
    history_.stacks.push_back({{"forward", "model.py", 7}});
    history_.stacks.push_back({{"norm", "model.py", 9}, {"main", "train.py", 3}});
  }
  void add(Action action, uint64_t address, uint64_t bytes, StackId stack = 0) {
    HistoryEvent event;
    event.action = action;
    event.address = address;
    event.size = bytes;
    event.stack = stack;
    event.microseconds = now_ += 1000;
    history_.devices[0].events.push_back(event);
  }
  uint64_t take(uint64_t bytes, StackId stack) {
    add(Action::kAllocate, next_ += 64 * kMiB, bytes, stack);
    return next_;
  }
  void give(uint64_t address, uint64_t bytes) {
    add(Action::kFreeRequested, address, bytes);
    add(Action::kFreeCompleted, address, bytes);
  }
  void fail() {
    failure_ = history_.devices[0].events.size();
    add(Action::kOutOfMemory, 0, kMiB, 1);
  }
  LastEvents last(uint64_t lines = 20) const { return last_events(history_, 0, failure_, lines); }
  std::vector<std::string> texts(uint64_t lines = 20) const {
    std::vector<std::string> texts;
    for (const EventGroup& group : last(lines).groups)
      texts.push_back(group_text(group) + (group.place.where.empty() ? "" : " at " + group.place.where));
    return texts;
  }

  MemoryHistory history_;
  uint64_t next_ = 0, now_ = 0;
  size_t failure_ = SIZE_MAX;
};

using Texts = std::vector<std::string>;

TEST_F(LastEventsTest, ALoopOverLayersIsALineForEachPlace) {
  for (int layer = 0; layer < 12; ++layer) {
    take(3 * kMiB, 1);
    give(take(kMiB, 2), kMiB);
  }
  fail();
  EXPECT_EQ(texts(),
            (Texts{"12 × allocated 3.00 MiB each, 36.00 MiB in all at model.py:7 forward",
                   "12 × allocated 1.00 MiB each, 12.00 MiB in all, freed again at model.py:9 norm"}));
  const LastEvents told = last();
  EXPECT_TRUE(told.of_failure);
  EXPECT_EQ(told.groups[1].from_us, 47'000u);
  EXPECT_EQ(told.groups[1].until_us, 3000u);
}

TEST_F(LastEventsTest, WhatTheExceptionFreesIsOnlyCounted) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(take(kMiB, 1));
  fail();
  for (const uint64_t block : blocks) give(block, kMiB);
  EXPECT_EQ(texts(), Texts{"5 × allocated 1.00 MiB each, 5.00 MiB in all at model.py:7 forward"});
  EXPECT_EQ(last().later, 5u) << "a free is one event";
  const std::string text = last_events_text(last());
  EXPECT_NE(text.find("Before the failure"), std::string::npos) << text;
  EXPECT_NE(text.find("5 events came after it"), std::string::npos) << text;
}

TEST_F(LastEventsTest, FreesOfOldBlocksAreOneLine) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 48; ++i) blocks.push_back(take(25 * kMiB, 1));
  for (int i = 0; i < 600; ++i) give(take(512, 2), 512);  // the lines tell of nothing older
  for (const uint64_t block : blocks) give(block, 25 * kMiB);
  fail();
  EXPECT_EQ(texts().back(), "freed 48 blocks, 1.17 GiB");
  EXPECT_GT(last().earlier, 600u);
}

TEST_F(LastEventsTest, AFreeThatWaitsForAnotherStreamIsSaidOnce) {
  add(Action::kFreeRequested, 4096, kMiB);
  take(2 * kMiB, 1);
  add(Action::kFreeCompleted, 4096, kMiB);
  fail();
  EXPECT_EQ(texts(), (Texts{"freed 1 block, 1.00 MiB, which other streams may still use",
                            "allocated 2.00 MiB at model.py:7 forward"}));
}

TEST_F(LastEventsTest, AnEarlierFailurePartsWhatWasBeforeItFromWhatCame) {
  take(kMiB, 1);
  add(Action::kOutOfMemory, 0, 9 * kMiB, 2);
  take(kMiB, 1);
  fail();
  EXPECT_EQ(texts(), (Texts{"allocated 1.00 MiB at model.py:7 forward",
                            "could not be served at once: 9.00 MiB at model.py:9 norm",
                            "allocated 1.00 MiB at model.py:7 forward"}));
}

TEST_F(LastEventsTest, OnlySoManyLinesAreShownTheLastOnes) {
  for (int i = 0; i < 6; ++i) {
    take(kMiB, 1);
    add(Action::kOutOfMemory, 0, 9 * kMiB, 2);
  }
  fail();
  const LastEvents told = last(3);
  EXPECT_EQ(told.groups.size(), 3u);
  EXPECT_EQ(told.groups.back().deed, Deed::kFailed);
  EXPECT_EQ(told.earlier, 9u);
  EXPECT_TRUE(last(0).groups.empty());
}

TEST_F(LastEventsTest, WithoutAFailureTheyAreThoseAtTheEnd) {
  take(kMiB, 1);
  EXPECT_FALSE(last().of_failure);
  EXPECT_EQ(last().groups.size(), 1u);
  EXPECT_EQ(last().later, 0u);
}

TEST_F(LastEventsTest, AHistoryWithoutAClockHasNoTimes) {
  take(kMiB, 1);
  fail();
  for (HistoryEvent& event : history_.devices[0].events) event.microseconds = 0;
  EXPECT_FALSE(last().groups[0].from_us);
}

}  // namespace
}  // namespace spillway::tools
