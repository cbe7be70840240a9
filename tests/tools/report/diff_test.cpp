// `spillway diff`: what grew between two runs, and between two steps of one.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/support.h"
#include "tools/spillway/diff/difference.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
const std::string kGolden = std::string(GOLDEN_FOLDER) + "/snapshot.pickle";

// A run that holds blocks of these sizes, each allocated by the stack of its number.
MemoryHistory run_of(std::vector<std::vector<StackFrame>> stacks,
                     std::vector<std::pair<StackId, uint64_t>> blocks) {
  MemoryHistory history;
  for (auto& stack : stacks) history.stacks.push_back(std::move(stack));
  DeviceHistory& device = history.devices[0];
  uint64_t address = 0;
  for (const auto& [stack, bytes] : blocks) {
    address += 64 * kMiB;
    HistoryEvent event;
    event.action = Action::kAllocate;
    event.address = address;
    event.size = bytes;
    event.stack = stack;
    device.events.push_back(event);
    HistorySegment segment;
    segment.address = address;
    segment.size = bytes;
    segment.blocks.push_back({address, bytes, bytes, BlockState::kAllocated, stack});
    device.segments.push_back(segment);
  }
  return history;
}

MomentSide end_of(const MemoryHistory& history) {
  return {&history, 0, history.devices.at(0).events.size()};
}

TEST(Difference, WhatChangedMostComesFirst) {
  const MemoryHistory before = run_of({{{"f", "a.py", 1}}, {{"g", "a.py", 9}}, {{"h", "a.py", 20}}},
                                      {{1, 4 * kMiB}, {2, 8 * kMiB}, {3, kMiB}});
  const MemoryHistory after = run_of({{{"f", "a.py", 1}}, {{"g", "a.py", 9}}, {{"h", "a.py", 20}}},
                                     {{1, 5 * kMiB}, {2, 2 * kMiB}, {3, kMiB}});
  const Difference difference = difference_of(end_of(before), end_of(after));
  EXPECT_EQ(difference.before.in_use, 13 * kMiB);
  EXPECT_EQ(difference.after.in_use, 8 * kMiB);
  EXPECT_EQ(difference.before.reserved, 13 * kMiB);
  ASSERT_EQ(difference.places.size(), 2u);
  EXPECT_EQ(difference.places[0].where, "a.py:9 g");
  EXPECT_EQ(difference.places[0].change(), -6 * static_cast<int64_t>(kMiB));
  EXPECT_EQ(difference.places[1].change(), static_cast<int64_t>(kMiB));
  EXPECT_EQ(difference.unchanged, 1u);
}

TEST(Difference, ALineThatMovedIsTheSamePlace) {
  const MemoryHistory before = run_of({{{"forward", "model.py", 47}}}, {{1, 4 * kMiB}});
  const MemoryHistory after = run_of({{{"forward", "model.py", 52}}}, {{1, 6 * kMiB}, {1, kMiB}});
  const Difference difference = difference_of(end_of(before), end_of(after));
  ASSERT_EQ(difference.places.size(), 1u);
  EXPECT_EQ(difference.places[0].where, "model.py:52 forward") << "as it is now";
  EXPECT_EQ(difference.places[0].before, 4 * kMiB);
  EXPECT_EQ(difference.places[0].after, 7 * kMiB);
  EXPECT_EQ(difference.places[0].blocks_after, 2u);
}

TEST(Difference, LinesOfOneFunctionStayApart) {
  const MemoryHistory before =
      run_of({{{"step", "train.py", 10}}, {{"step", "train.py", 11}}}, {{1, 2 * kMiB}, {2, 4 * kMiB}});
  const MemoryHistory after =
      run_of({{{"step", "train.py", 15}}, {{"step", "train.py", 16}}}, {{1, 2 * kMiB}, {2, 9 * kMiB}});
  const Difference same = difference_of(end_of(before), end_of(before));
  EXPECT_EQ(same.unchanged, 2u);
  const Difference moved = difference_of(end_of(before), end_of(after));
  EXPECT_EQ(moved.unchanged, 1u);
  ASSERT_EQ(moved.places.size(), 1u);
  EXPECT_EQ(moved.places[0].where, "train.py:16 step");
  EXPECT_EQ(moved.places[0].before, 4 * kMiB);
}

TEST(Difference, PlacesThatCameAndWent) {
  const MemoryHistory before = run_of({{{"old", "a.py", 1}}}, {{1, kMiB}});
  const MemoryHistory after = run_of({{{"made", "b.py", 2}}}, {{1, 3 * kMiB}});
  const Difference difference = difference_of(end_of(before), end_of(after));
  ASSERT_EQ(difference.places.size(), 2u);
  EXPECT_EQ(difference.places[0].where, "b.py:2 made");
  EXPECT_EQ(difference.places[0].before, 0u);
  EXPECT_EQ(difference.places[1].where, "a.py:1 old");
  EXPECT_EQ(difference.places[1].after, 0u);
}

// As of a long run, whose trace has kept the last events alone.
TEST(Difference, MemoryThatIsOlderThanTheFileCounts) {
  MemoryHistory before = run_of({{{"f", "a.py", 1}}}, {{1, 2 * kMiB}});
  before.devices[0].unknown_bytes = 160 * kMiB;
  before.devices[0].held_bytes = 170 * kMiB;
  const MemoryHistory after = run_of({{{"f", "a.py", 1}}}, {{1, 160 * kMiB}});
  const Difference difference = difference_of(end_of(before), end_of(after));
  EXPECT_EQ(difference.before.in_use, 162 * kMiB);
  EXPECT_EQ(difference.before.older, 160 * kMiB);
  EXPECT_EQ(difference.before.reserved, 170 * kMiB) << "as the allocator counted it at the end";
  EXPECT_EQ(difference_of({&before, 0, 0}, end_of(after)).before.reserved, 160 * kMiB);
  EXPECT_EQ(difference.after.older, 0u);
  ASSERT_EQ(difference.places.size(), 2u);
  EXPECT_EQ(difference.places[0].where, "older than what the file tells of");
  EXPECT_EQ(difference.places[0].before, 160 * kMiB);
  EXPECT_EQ(difference.places[0].after, 0u);
  EXPECT_EQ(difference_of(end_of(before), end_of(before)).unchanged, 2u);
}

TEST(Difference, WhatAFileLacksAndAnotherDeviceAreSaid) {
  MemoryHistory before = run_of({{{"f", "a.py", 1}}}, {{1, 2 * kMiB}}), after = before;
  after.devices[3] = after.devices[0];
  after.devices.erase(0);
  after.incomplete = "the file ends early";
  const Difference difference = difference_of(end_of(before), {&after, 3, 1});
  const std::string text = difference_text(difference, "a.pickle, at its peak", "b.pickle, at its peak");
  EXPECT_THAT(text, HasSubstr("NOT WHOLE: B: the file ends early"));
  EXPECT_THAT(text, HasSubstr("a.pickle, at its peak, device 0\n"));
  EXPECT_THAT(text, HasSubstr("b.pickle, at its peak, device 3\n"));
  const auto json = nlohmann::json::parse(difference_json(difference, "a", "b"));
  EXPECT_EQ(json["before"]["incomplete"], "");
  EXPECT_EQ(json["after"]["incomplete"], "the file ends early");
  EXPECT_EQ(json["after"]["device"], 3);
  EXPECT_EQ(json["after"]["older_bytes"], 0);
}

using DiffCommand = CommandTest;

TEST_F(DiffCommand, AFileAndItselfAreTheSame) {
  const Ran ran = run({"diff", kGolden, kGolden});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("No place holds more or less."));
}

TEST_F(DiffCommand, BetweenTwoStepsALeakIsWhatGrew) {
  const Ran ran = run({"diff", kGolden, "--steps", "3,6", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["places"][0]["where"], "train.py:11 step");
  EXPECT_EQ(json["places"][0]["change_bytes"], 3 * 2 * kMiB) << "2 MiB of each step";
}

TEST_F(DiffCommand, AnswersWrongUsage) {
  const auto refused = [this](std::vector<std::string> words, const std::string& why, int code) {
    words.insert(words.begin(), "diff");
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  refused({kGolden}, "name two files, or one and --steps N,M", 2);
  refused({kGolden, kGolden, "--steps", "1,2"}, "name two files, or one and --steps N,M", 2);
  refused({kGolden, "--steps", "1,99"}, "there is no step 99", 2);
  refused({kGolden, "--steps", "0,2"}, "there is no step 0", 2);
  refused({kGolden, "none.pickle"}, "none.pickle", 3);
  refused({kGolden, kGolden, "--at", "noon"}, "noon", 2);
}

}  // namespace
}  // namespace spillway::tools
