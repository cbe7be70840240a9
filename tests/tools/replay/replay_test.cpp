// The replay: what its parts read and decide, requests by hand on each allocator, and histories that make no
// sense. tests/libtorch/test_replay.py compares the model with PyTorch itself.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/tools/support.h"
#include "tools/spillway/replay/counterfactuals.h"
#include "tools/spillway/replay/input/rehearsed_stream.h"
#include "tools/spillway/replay/input/requests.h"
#include "tools/spillway/replay/replay.h"
#include "tools/spillway/replay/torch/torch_settings.h"

namespace spillway::tools {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using enum ReplayAllocator;

constexpr uint64_t kMiB = uint64_t{1} << 20;

ReplayDeadline soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

// Requests by hand: "8" allocates 8 MiB, "-0" frees the first block, "~0" frees it while it is used
// elsewhere.
Requests written(const std::vector<int>& sizes_and_frees) {
  Requests made;
  made.streams = 1;
  for (const int word : sizes_and_frees) {
    if (word > 0)
      made.requests.push_back({RequestKind::kAllocate, made.blocks++, static_cast<uint64_t>(word) * kMiB});
    else
      made.requests.push_back({RequestKind::kFree, static_cast<uint32_t>(-word)});
  }
  return made;
}

bool served(const Requests& requests, ReplayAllocator allocator, uint64_t capacity,
            const TorchSettings& settings = {}) {
  const ReplayOutcome outcome = replay(requests, {allocator, settings}, capacity, soon());
  EXPECT_EQ(outcome.error, "");
  EXPECT_TRUE(outcome.finished);
  return outcome.completes();
}

TEST(Replay, FragmentsOfFreedSegmentsServeNothingLarger) {
  // Two of 100, of which 45 stay free beside 55: no room for 80 on 260, though 150 are not in use.
  const Requests requests = written({100, 100, 0, -1, 55, 55, 80});
  EXPECT_FALSE(served(requests, kNative, 260 * kMiB));
  EXPECT_TRUE(served(requests, kExpandable, 260 * kMiB));
  EXPECT_TRUE(served(requests, kSpillway, 260 * kMiB));
  const ReplayOutcome outcome = replay(requests, {kNative, {}}, 260 * kMiB, soon());
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->request, 6u);
  EXPECT_EQ(outcome.failure->bytes, 80 * kMiB);
  EXPECT_EQ(outcome.failure->largest_free, 45 * kMiB);
  EXPECT_EQ(outcome.failure->reserved, 200 * kMiB);
  EXPECT_EQ(outcome.failure->live, 110 * kMiB);
}

TEST(Replay, TheSmallestCapacityIsInSegmentsAndPages) {
  const auto smallest = [](const Requests& requests, ReplayAllocator allocator) {
    return smallest_capacity(requests, {allocator, {}}, soon()).bytes;
  };
  EXPECT_EQ(smallest(written({3}), kNative), 20 * kMiB);
  EXPECT_EQ(smallest(written({3}), kExpandable), 20 * kMiB);
  EXPECT_EQ(smallest(written({3}), kSpillway), 4 * kMiB);
  EXPECT_EQ(smallest(written({1}), kNative), 2 * kMiB);
  EXPECT_EQ(smallest(written({11}), kNative), 12 * kMiB);
  EXPECT_EQ(smallest(written({11}), kExpandable), 20 * kMiB);
}

TEST(Replay, SpillwaysCardMayBeLarge) {
  EXPECT_TRUE(served(written(std::vector<int>(3000, 30)), kSpillway, uint64_t{190} << 30));
}

TEST(Replay, CachedSegmentsAreGivenBackBeforeARequestFails) {
  EXPECT_TRUE(served(written({30, 0, 40}), kNative, 40 * kMiB));
  EXPECT_TRUE(served(written({30, 0, 40}), kExpandable, 40 * kMiB));
}

TEST(Replay, AFailingRequestWaitsForWhatOtherStreamsUse) {
  Requests requests = written({30, 40});
  requests.requests.insert(requests.requests.begin() + 1, {RequestKind::kFreeLater, 0});
  for (const ReplayAllocator allocator : {kNative, kExpandable, kSpillway})
    EXPECT_TRUE(served(requests, allocator, 40 * kMiB)) << replay_allocator_name(allocator);
  requests.requests.pop_back();
  requests.requests.push_back({RequestKind::kAllocate, 1, 30 * kMiB});
  EXPECT_EQ(replay(requests, {kNative, {}}, 80 * kMiB, soon()).most_reserved, 60 * kMiB)
      << "until then it is in use";
}

TEST(Replay, APrivatePoolKeepsItsMemory) {
  Requests requests = written({30, 0, 40});
  requests.requests[0].pool = 1;
  requests.pools = 2;
  EXPECT_FALSE(served(requests, kNative, 40 * kMiB));
  EXPECT_TRUE(served(requests, kNative, 70 * kMiB));
}

TEST(Replay, BlocksOfTheLargestSizeToSplitStayWhole) {
  TorchSettings settings = parse_torch_settings("max_split_size_mb:50");
  const Requests requests = written({100, 0, 30});
  EXPECT_EQ(replay(requests, {kNative, {}}, 500 * kMiB, soon()).most_reserved, 100 * kMiB);
  EXPECT_EQ(replay(requests, {kNative, settings}, 500 * kMiB, soon()).most_reserved, 130 * kMiB);
  EXPECT_TRUE(served(requests, kNative, 100 * kMiB, settings)) << "a whole one is given back";
}

TEST(Replay, AReplayThatTakesTooLongIsNotFinished) {
  const ReplayOutcome outcome = replay(written({3}), {kNative, {}}, 500 * kMiB, ReplayDeadline::min());
  EXPECT_FALSE(outcome.finished);
  EXPECT_FALSE(outcome.completes());
}

TEST(TorchSettings, AreReadAsPyTorchReadsThem) {
  const TorchSettings all = parse_torch_settings(
      "expandable_segments:True, max_split_size_mb:64,roundup_power2_divisions:[2:1,4:2,>:8],what:3");
  EXPECT_TRUE(all.expandable_segments);
  EXPECT_EQ(all.max_split_bytes, 64 * kMiB);
  EXPECT_THAT(all.ignored, ElementsAre("what"));
  EXPECT_EQ(all.rounded(1), 512u);
  EXPECT_EQ(all.rounded(kMiB + 1), kMiB + 512) << "one division is none";
  EXPECT_EQ(all.rounded(5 * kMiB), 6 * kMiB) << "halves from 4 MiB on";
  EXPECT_EQ(all.rounded(9 * kMiB + 1), 10 * kMiB) << "eighths above";
  EXPECT_EQ(parse_torch_settings("roundup_power2_divisions:4").rounded(5000), 5120u);
  for (const char* odd : {"", ",", ":", "[", "]", "[[", "max_split_size_mb:-1", "large_segment_size_mb:0",
                          "roundup_power2_divisions:[", "roundup_power2_divisions:[:]", "a:[,"})
    parse_torch_settings(odd).rounded(kMiB);
}

TEST(StreamOfRequests, IsReadOrItsLineIsNamed) {
  const std::string path = std::filesystem::temp_directory_path() / ("replay_" + std::to_string(::getpid()));
  const auto read = [&](const std::string& text, std::string* error) {
    std::ofstream(path) << text;
    return read_stream(path, error);
  };
  std::string error;
  const auto good = read("a 7 100 3\nstep\na 9 600 0\nf 7\n", &error);
  ASSERT_TRUE(good) << error;
  EXPECT_EQ(good->blocks, 2u);
  EXPECT_EQ(good->streams, 2u);
  EXPECT_THAT(good->steps, ElementsAre(1u));
  EXPECT_EQ(most_live(*good), 512u + 1024u);
  for (const char* wrong :
       {"a 7 100", "f 1", "a 7 1 0\na 7 1 0", "a 7 0 0", "a 7 x 0", "what", "f 7 7", "a -1 5 0"}) {
    EXPECT_FALSE(read(wrong, &error)) << wrong;
    EXPECT_THAT(error, HasSubstr("is no line of a stream")) << wrong;
  }
  std::filesystem::remove(path);
}

using ReplayCommand = CommandTest;

TEST_F(ReplayCommand, ReadsTheStreamOfARehearsal) {
  std::ofstream(folder() / "run.stream") << "spillway-stream 1\n"
                                            "0 + 2097152\n"
                                            "0 a 600 0 0\n"
                                            "1 a 512 0 0\n"
                                            "step 1\n"
                                            "0 a 1000 18446744073709551615 4\n"
                                            "0 f 1\n"
                                            "0 ! 8388608 7\n"
                                            "0 a 4096 0 1\n"
                                            "0 f 3\n";
  std::string error;
  const auto read = read_rehearsed_stream(folder() / "run.stream", &error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(read->device, 0);
  EXPECT_EQ(read->requests.blocks, 3u) << "up to the request that failed";
  EXPECT_EQ(read->requests.streams, 2u);
  ASSERT_EQ(read->requests.requests.size(), 4u);
  EXPECT_EQ(read->requests.requests.back().bytes, 8388608u);
  EXPECT_THAT(read->requests.steps, ElementsAre(0u, 1u));
  const Ran ran = run({"replay", "run.stream", "--capacity", "4MiB", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["allocators"][0]["failure"]["bytes"], 8388608);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"report", "run.stream"}, {"diff", "run.stream", "run.stream"}}) {
    const Ran refused = run(command);
    EXPECT_EQ(refused.code, 3) << command[0];
    EXPECT_THAT(refused.err, HasSubstr("is a text of requests, such as rehearse --trace writes"));
  }
  for (const char* wrong : {"0 a 600 0\n", "0 f 1\n", "0 x 1\n", "what\n", "0 a 0 0 0\n", "-1 a 5 0 0\n"}) {
    std::ofstream(folder() / "run.stream") << "spillway-stream 1\n" << wrong;
    EXPECT_FALSE(read_rehearsed_stream(folder() / "run.stream", &error)) << wrong;
    EXPECT_THAT(error, HasSubstr("run.stream:2: "));
  }
}

TEST_F(ReplayCommand, FailsWhereTheProgramDidAndFindsWhatWouldDo) {
  std::filesystem::copy_file(std::string(GOLDEN_FOLDER) + "/snapshot.pickle", folder() / "run.pickle");
  const Ran ran = run({"replay", "run.pickle", "--find", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["capacity_bytes"], 56 * kMiB) << "42 held and 14 free";
  const auto& native = json["allocators"][0];
  EXPECT_EQ(native["completes"], false);
  EXPECT_EQ(native["failure"]["bytes"], 8519680);
  EXPECT_EQ(native["failure"]["reserved_bytes"], 42 * kMiB);
  EXPECT_EQ(native["failure"]["live_bytes"], 30411784) << "as the report of the same file says";
  EXPECT_EQ(native["smallest_bytes"], 62 * kMiB);
  EXPECT_EQ(json["allocators"][2]["completes"], true);
}

TEST_F(ReplayCommand, RefusesWhatIsNothingToReplay) {
  EXPECT_EQ(run({"replay"}).code, 2);
  EXPECT_EQ(run({"replay", "nothing.trace"}).code, 3);
  std::ofstream(folder() / "some.stream") << "a 0 100 0\nb\n";
  const Ran line = run({"replay", "some.stream"});
  EXPECT_EQ(line.code, 3);
  EXPECT_THAT(line.err, HasSubstr("some.stream:2: 'b' is no line of a stream"));
  std::ofstream(folder() / "some.stream") << "a 0 100 0\n";
  EXPECT_EQ(run({"replay", "some.stream", "--allocator", "native,best"}).code, 2);
  EXPECT_EQ(run({"replay", "some.stream", "--capacity", "much"}).code, 2);
}

// A history of one device on which 9 blocks of 10 MiB were live and one more was asked for.
MemoryHistory history_of_failure(uint64_t free) {
  MemoryHistory history;
  DeviceHistory& device = history.devices[0];
  for (uint64_t i = 0; i < 9; ++i)
    device.events.push_back({Action::kAllocate, 0, (i + 1) * 16 * kMiB, 10 * kMiB, 0, i, {}});
  for (uint64_t i = 0; i < 9; ++i)
    device.segments.push_back({(i + 1) * 16 * kMiB,
                               10 * kMiB,
                               0,
                               {},
                               true,
                               false,
                               {{(i + 1) * 16 * kMiB, 10 * kMiB, 10 * kMiB, BlockState::kAllocated, 0}}});
  device.events.push_back({Action::kOutOfMemory, 0, free, 10 * kMiB, 0, 9, {}});
  return history;
}

TEST(Counterfactuals, WhatIsMissingIsTheSmallestOfWhatIsTried) {
  const MemoryHistory history = history_of_failure(4 * kMiB);
  const auto found = look_into(history, std::nullopt);
  ASSERT_TRUE(found);
  const Counterfactuals fitted = what_would_have_fitted(history, *found);
  EXPECT_EQ(fitted.no_answer, "");
  EXPECT_THAT(fitted.notes, ElementsAre());
  ASSERT_GE(fitted.items.size(), 3u);
  EXPECT_EQ(fitted.items[0].fits, false);
  EXPECT_EQ(fitted.items[0].bytes, 6 * kMiB);
  EXPECT_EQ(fitted.items[1].fits, false);
  EXPECT_EQ(fitted.items[1].bytes, 6 * kMiB);
  EXPECT_EQ(fitted.items[2].fits, true);
  EXPECT_EQ(fitted.items[2].bytes, 6 * kMiB);
}

TEST(Counterfactuals, AReplayThatDiffersFromWhatHappenedIsSaid) {
  const MemoryHistory history = history_of_failure(0);
  MemoryHistory older = history;  // without its first half, and so with blocks of unknown order
  auto& events = older.devices[0].events;
  events.erase(events.begin(), events.begin() + 5);
  const auto found = look_into(older, std::nullopt);
  const Counterfactuals fitted = what_would_have_fitted(older, *found);
  ASSERT_EQ(fitted.notes.size(), 1u);
  EXPECT_THAT(fitted.notes[0], HasSubstr("50.00 MiB were allocated before the history began"));
  MemoryHistory other = history;  // a block was free that PyTorch would have given
  DeviceHistory& device = other.devices[0];
  const uint64_t address = device.segments[3].address;
  device.segments[3].blocks[0].state = BlockState::kFree;
  device.events.insert(device.events.end() - 1, {{Action::kFreeRequested, 0, address, 10 * kMiB, 0, 9, {}},
                                                 {Action::kFreeCompleted, 0, address, 10 * kMiB, 0, 9, {}}});
  const auto wrong = look_into(other, std::nullopt);
  EXPECT_THAT(what_would_have_fitted(other, *wrong).notes,
              ElementsAre(HasSubstr("this request is served: the replay differs from what happened")));
}

TEST(Counterfactuals, ASegmentThatIsLargerThanWhatIsFreeIsNoLimit) {
  MemoryHistory history = history_of_failure(14 * kMiB);
  history.devices[0].events.back().size = 8 * kMiB;  // less than is free, but its segment is of 20 MiB
  EXPECT_NE(look_into(history, std::nullopt)->verdict.cause, Cause::kLimit);
  history.devices[0].events.back().address = 20 * kMiB;
  EXPECT_EQ(look_into(history, std::nullopt)->verdict.cause, Cause::kLimit);
}

TEST(Counterfactuals, WhatWasNotFoundOutHasItsReason) {
  const MemoryHistory history = history_of_failure(4 * kMiB);
  const Counterfactuals fitted = what_would_have_fitted(history, *look_into(history, std::nullopt), 0);
  EXPECT_THAT(counterfactuals_text(fitted),
              AllOf(HasSubstr("the replays take too long"), Not(HasSubstr("too many requests"))));
}

// A trace does, and `spillway report` refuses --capacity for it.
TEST(Counterfactuals, WhoKnowsTheCardIsNotAskedForIt) {
  MemoryHistory history = history_of_failure(4 * kMiB);
  history.of_spillway = true;
  const auto found = look_into(history, 80 * kMiB);  // and 90 are held: some were moved off the card
  const Counterfactuals fitted = what_would_have_fitted(history, *found);
  EXPECT_THAT(counterfactuals_text(fitted),
              AllOf(HasSubstr("what it held and what was free are more than the 80.00 MiB"),
                    Not(HasSubstr("--capacity"))));
  const auto unknown = look_into(history, std::nullopt);
  EXPECT_THAT(counterfactuals_text(what_would_have_fitted(history, *unknown)),
              HasSubstr("--capacity says it"));
}

TEST(Counterfactuals, WithoutMostOfItsBeginningAHistoryAnswersNothing) {
  MemoryHistory history = history_of_failure(4 * kMiB);
  history.devices[0].unknown_bytes = 20 * kMiB;
  const auto found = look_into(history, std::nullopt);
  EXPECT_FALSE(what_would_have_fitted(history, *found).items.empty());
  history.devices[0].unknown_bytes = 40 * kMiB;
  const Counterfactuals fitted = what_would_have_fitted(history, *found);
  EXPECT_EQ(fitted.no_answer, "40.00 MiB in use were allocated before the history begins");
  EXPECT_TRUE(fitted.items.empty());
  EXPECT_THAT(counterfactuals_text(fitted), HasSubstr("No answer: 40.00 MiB"));
}

TEST(Counterfactuals, WithoutAFailureThereIsNoAnswer) {
  MemoryHistory history = history_of_failure(0);
  history.devices[0].events.pop_back();
  const auto found = look_into(history, std::nullopt);
  const Counterfactuals fitted = what_would_have_fitted(history, *found);
  EXPECT_EQ(fitted.no_answer, "no request failed");
  EXPECT_TRUE(fitted.items.empty());
}

TEST(Counterfactuals, HistoriesThatMakeNoSenseAreSurvived) {
  std::mt19937_64 draw(3);
  const auto number = [&]() -> uint64_t {
    const uint64_t some[] = {0, 1, 512, 2 * kMiB, draw() % 64 * kMiB, UINT64_MAX, UINT64_MAX - 511, draw()};
    return some[draw() % std::size(some)];
  };
  for (int round = 0; round < 300; ++round) {
    MemoryHistory history;
    DeviceHistory& device = history.devices[0];
    for (int i = 0; i < 40; ++i)
      device.events.push_back(
          {static_cast<Action>(draw() % 7), 0, number(), number(), draw() % 3, number(), {}});
    for (int i = 0; i < 3; ++i)
      device.segments.push_back({number(),
                                 number(),
                                 draw() % 3,
                                 {},
                                 true,
                                 draw() % 2 == 0,
                                 {{number(), number(), number(), BlockState::kAllocated, 0}}});
    device.step_events = {draw() % 50, draw() % 50};
    std::sort(device.step_events.begin(), device.step_events.end());
    device.unknown_bytes = draw() % 2 == 0 ? number() : 0;
    history.settings["PYTORCH_ALLOC_CONF"] =
        "expandable_segments:" + std::string(draw() % 2 ? "True" : "False");
    const auto found = look_into(history, std::nullopt);
    ASSERT_TRUE(found);
    counterfactuals_text(what_would_have_fitted(history, *found, 100));
    const Requests requests = requests_of(device, draw() % 45);
    for (const ReplayAllocator allocator : {kNative, kExpandable, kSpillway})
      replay(requests, {allocator, {}}, number(), soon());
  }
}

}  // namespace
}  // namespace spillway::tools
