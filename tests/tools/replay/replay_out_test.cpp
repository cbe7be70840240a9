// `spillway replay --out`: what an allocator did in a replay, as a snapshot that is reported again.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "tests/tools/support.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/replay/replay.h"

namespace spillway::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using enum ReplayAllocator;

constexpr uint64_t kMiB = 1 << 20;
const std::string kGolden = std::string(GOLDEN_FOLDER) + "/snapshot.pickle";

// Allocations and frees of two streams, some of them late.
Requests random_requests(uint64_t seed) {
  std::mt19937_64 random(seed);
  Requests made;
  made.streams = 2;
  std::vector<uint32_t> live, pending;
  for (int i = 0; i < 600; ++i) {
    if (i % 100 == 0) made.steps.push_back(made.requests.size());
    if (!pending.empty() && random() % 4 == 0) {
      made.requests.push_back({RequestKind::kFree, pending.back()});
      pending.pop_back();
    } else if (live.size() > 20 && random() % 2 == 0) {
      const size_t which = random() % live.size();
      const bool later = random() % 4 == 0;
      made.requests.push_back({later ? RequestKind::kFreeLater : RequestKind::kFree, live[which]});
      if (later) pending.push_back(live[which]);
      live.erase(live.begin() + static_cast<ptrdiff_t>(which));
    } else {
      live.push_back(made.blocks);
      const uint64_t bytes = 1 + random() % (random() % 3 == 0 ? 30 * kMiB : 500'000);
      made.requests.push_back(
          {RequestKind::kAllocate, made.blocks++, bytes, static_cast<uint32_t>(random() % 2)});
    }
  }
  return made;
}

// An allocator waits for what was freed late before it fails a request.
uint64_t live_at_failure(const Requests& requests, size_t failed) {
  std::vector<uint64_t> sizes(requests.blocks);
  for (size_t i = 0; i < failed; ++i) {
    const ReplayRequest& request = requests.requests[i];
    sizes[request.block] = request.kind == RequestKind::kAllocate ? request.bytes : 0;
  }
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
}

void expect_tiled(const DeviceHistory& device) {
  uint64_t before = 0;
  for (const HistorySegment& segment : device.segments) {
    EXPECT_GE(segment.address, before);
    uint64_t at = segment.address;
    for (const HistoryBlock& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      at += block.size;
    }
    EXPECT_EQ(at, before = segment.address + segment.size);
  }
}

// Backwards from its end the record meets no contradiction, and it holds what the allocator said.
TEST(ReplayRecord, GoesWithWhatTheAllocatorHeld) {
  for (const ReplayAllocator allocator : {kNative, kExpandable, kSpillway}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const Requests requests = random_requests(seed);
      const uint64_t capacity = (120 + 40 * (seed % 4)) * kMiB;
      ReplayRecord record;
      const ReplayOutcome outcome =
          replay(requests, {allocator, {}}, capacity,
                 std::chrono::steady_clock::now() + std::chrono::seconds(60), &record);
      SCOPED_TRACE(std::string(replay_allocator_name(allocator)) + ", seed " + std::to_string(seed));
      ASSERT_TRUE(outcome.finished) << outcome.error;
      EXPECT_EQ(record.incomplete, "");
      const DeviceHistory& device = record.device;
      expect_tiled(device);
      const Moment end = moment_at(device, device.events.size());
      EXPECT_EQ(end.contradictions, 0u);
      const Moment start = moment_at(device, 0);
      EXPECT_EQ(start.contradictions, 0u);
      EXPECT_EQ(start.blocks.size(), 0u);
      EXPECT_EQ(start.reserved, 0u);
      uint64_t most = 0, held = 0;
      for (const HistoryEvent& event : device.events) {
        if (event.action == Action::kSegmentAllocate) most = std::max(most, held += event.size);
        if (event.action == Action::kSegmentFree) held -= event.size;
      }
      if (allocator != kSpillway) {
        EXPECT_EQ(most, outcome.most_reserved);
      }
      if (!outcome.failure) continue;
      EXPECT_EQ(device.events.back().action, Action::kOutOfMemory);
      EXPECT_EQ(device.events.back().size, outcome.failure->bytes);
      uint64_t live = 0;
      for (const HeldBlock& block : end.blocks) live += block.requested;
      EXPECT_EQ(live, live_at_failure(requests, outcome.failure->request));
    }
  }
}

class ReplayOut : public CommandTest {
 protected:
  Json report(const std::string& file) const {
    const Ran ran = run({"report", file, "--json"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return Json::parse(ran.out);
  }
  Json replayed(const std::string& file, const std::string& allocator,
                std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"replay",  file,    "--allocator",
                                      allocator, "--out", allocator + ".pickle"};
    words.insert(words.end(), more.begin(), more.end());
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("What " + allocator + " did is a memory snapshot now: " + allocator));
    return report(allocator + ".pickle");
  }
};

// The golden program ran on the native allocator: a replay on it comes out as the program did.
TEST_F(ReplayOut, OnItsOwnAllocatorAProgramIsReportedAsItWas) {
  const Json program = report(kGolden), again = replayed(kGolden, "native");
  for (const char* same : {"verdict", "failure", "failures", "memory", "holders", "counterfactuals"})
    EXPECT_EQ(again[same], program[same]) << same;
  EXPECT_EQ(again["settings"]["spillway_replay"], "native, on 56.00 MiB");
  EXPECT_EQ(again["history"]["contradictions"], 0);
}

TEST_F(ReplayOut, EveryPlacementsEquationCloses) {
  for (const char* allocator : {"native", "expandable", "spillway"}) {
    const Json shown = replayed(kGolden, allocator, {"--capacity", "40MiB"});
    const Json& memory = shown["memory"];
    uint64_t sum = 0;
    for (const char* part :
         {"in_use_bytes", "rounding_bytes", "pending_bytes", "idle_bytes", "elsewhere_bytes"})
      sum += memory[part].get<uint64_t>();
    EXPECT_EQ(memory["reserved_bytes"], sum) << allocator;
    EXPECT_EQ(memory["reserved_bytes"].get<uint64_t>() + memory["free_bytes"].get<uint64_t>(), 40 * kMiB)
        << allocator;
    EXPECT_EQ(shown["settings"]["spillway_replay"], std::string(allocator) + ", on 40.00 MiB");
    EXPECT_THAT(shown["holders"].dump(), HasSubstr("\"train.py:11 step\""));
    EXPECT_THAT(run({"report", std::string(allocator) + ".pickle"}).out,
                HasSubstr("  placed by a replay: " + std::string(allocator) + ", on 40.00 MiB\n"));
  }
}

TEST_F(ReplayOut, WhatTheFileLacksIsPassedOn) {
  const std::string log = std::string(GOLDEN_FOLDER) + "/rmm.dev1.csv";
  std::ifstream whole(log);
  std::string text{std::istreambuf_iterator<char>(whole), {}};
  std::ofstream(folder() / "cut.csv") << text.substr(0, text.size() - 30);
  const Json shown = replayed("cut.csv", "native", {"--capacity", "100MiB"});
  EXPECT_THAT(shown["incomplete"].get<std::string>(), HasSubstr("the file ends within line"));
  EXPECT_THAT(shown["holders"][0]["where"].get<std::string>(), HasSubstr("thread 1980043"));
  EXPECT_NE(shown["memory"]["reserved_bytes"], nullptr) << "a replay knows what a log does not";
}

// A stream has no times, and what is made of it none either.
TEST_F(ReplayOut, WithoutAClockNothingHasAnAge) {
  std::ofstream(folder() / "stream.txt") << "a 1 1000000 0\na 2 9000000 0\n";
  replayed("stream.txt", "native", {"--capacity", "100MiB"});
  const std::string text = run({"report", "native.pickle"}).out;
  EXPECT_THAT(text, AllOf(HasSubstr("blocks"), Not(HasSubstr("oldest")), Not(HasSubstr(" µs"))));
}

TEST_F(ReplayOut, OfOneAllocatorOnAKnownCapacity) {
  const Ran three = run({"replay", kGolden, "--out", "out.pickle"});
  EXPECT_EQ(three.code, 2);
  EXPECT_THAT(three.err, HasSubstr("choose one allocator"));
  std::ofstream(folder() / "stream.txt") << "a 1 1000 0\n";
  const Ran unknown = run({"replay", "stream.txt", "--allocator", "native", "--out", "out.pickle"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--capacity SIZE"));
  EXPECT_EQ(run({"replay", kGolden, "--allocator", "native", "--out", "none/out.pickle"}).code, 4);
}

}  // namespace
}  // namespace spillway::tools
