// A trace of Spillway's as a history: of traces that the allocator writes on the simulated driver, of a ring
// that has lost its beginning, of steps and failures, and of records that make no sense.
#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "tests/allocator/simulated.h"
#include "tests/tools/support.h"
#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/report/trace/trace_history.h"
#include "trace/writer.h"

namespace spillway::tools {
namespace {

using spillway::testing::kKiB;
using spillway::testing::kMiB;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trace::Kind;
using trace::Record;

struct InUse {
  uint64_t bytes = 0, blocks = 0, pending = 0;
};

InUse in_use(const DeviceHistory& device) {
  InUse sum;
  for (const HistorySegment& segment : device.segments) {
    uint64_t at = segment.address;
    for (const HistoryBlock& block : segment.blocks) {
      EXPECT_EQ(block.address, at) << "blocks tile their segment";
      at += block.size;
      if (block.state == BlockState::kPendingFree) ++sum.pending;
      if (block.state != BlockState::kAllocated) continue;
      sum.bytes += block.requested;
      ++sum.blocks;
    }
    EXPECT_EQ(at, segment.address + segment.size);
  }
  return sum;
}

uint64_t reserved(const DeviceHistory& device) {
  uint64_t bytes = 0;
  for (const HistorySegment& segment : device.segments) bytes += segment.size;
  return bytes;
}

// What the allocator itself writes.
class WrittenByTheAllocator : public spillway::testing::SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    path_ = std::filesystem::temp_directory_path() / ("trace_history_" + std::to_string(::getpid()));
    open(1024);
  }
  void TearDown() override {
    allocator->set_trace(nullptr);
    trace_.reset();
    std::filesystem::remove(path_);
    SimulatedDevice::TearDown();
  }
  void open(uint32_t records) {
    allocator->set_trace(nullptr);
    std::string error;
    trace_ = trace::Trace::open(path_, {.rings = 4, .records_per_ring = records}, &error);
    ASSERT_TRUE(trace_) << error;
    allocator->set_trace(trace_.get());
  }
  MemoryHistory history() {
    trace::Contents contents;
    std::string error;
    EXPECT_TRUE(trace::read(path_, &contents, &error)) << error;
    return history_of(contents);
  }
  uint64_t held() {
    const Memory memory = this->memory();
    return memory.live + memory.rounding + memory.stranded + memory.cached + memory.pending;
  }

  std::string path_;
  std::unique_ptr<trace::Trace> trace_;
};

TEST_F(WrittenByTheAllocator, BlocksAndPagesAreThoseOfTheAllocator) {
  const StreamId other = new_stream();
  const uint64_t kept = get(5 * kMiB + 100);
  const uint64_t freed = get(3 * kMiB);
  get(700);
  const uint64_t waits = get(8 * kMiB, other);
  launch({}, waits, 100);
  ASSERT_EQ(allocator->record_stream(waits, {}), Status::kOk);
  put(freed);
  put(waits);
  const MemoryHistory told = history();
  ASSERT_EQ(told.devices.size(), 1u);
  const DeviceHistory& device = told.devices.at(0);
  EXPECT_EQ(in_use(device).bytes, 5 * kMiB + 100 + 700);
  EXPECT_EQ(in_use(device).bytes, memory().live);
  EXPECT_EQ(in_use(device).pending, 1u);
  EXPECT_EQ(reserved(device), held());
  EXPECT_EQ(told.incomplete, "");
  EXPECT_EQ(device.unknown_bytes, 0u);
  const auto of_stream = [&](StreamId stream) {
    return std::count_if(device.segments.begin(), device.segments.end(), [&](const HistorySegment& segment) {
      return segment.stream == static_cast<uint64_t>(stream);
    });
  };
  EXPECT_GE(of_stream(other), 1);
  EXPECT_GE(of_stream({}), 1);
  const Moment moment = moment_at(device, device.events.size());
  EXPECT_EQ(moment.contradictions, 0u);
  EXPECT_EQ(moment.reserved, held());
  EXPECT_EQ(moment_at(device, 0).contradictions, 0u);
  EXPECT_EQ(moment_at(device, 0).blocks.size(), 0u) << "backwards from the end, nothing was there";
  EXPECT_EQ(moment_at(device, 0).reserved, 0u);
  put(kept);
}

TEST_F(WrittenByTheAllocator, APendingFreeSaysTheStreamThatItWaitsFor) {
  const StreamId other = new_stream();
  const uint64_t waits = get(8 * kMiB);
  launch(other, waits, 100);
  ASSERT_EQ(allocator->record_stream(waits, other), Status::kOk);
  put(waits);
  trace::Contents contents;
  std::string error;
  ASSERT_TRUE(trace::read(path_, &contents, &error)) << error;
  const auto freed = std::ranges::find(contents.records, trace::Kind::kFreePending, &trace::Record::kind);
  ASSERT_NE(freed, contents.records.end());
  EXPECT_EQ(freed->value, 1u);
  EXPECT_EQ(freed->detail, static_cast<uint64_t>(other));
}

TEST_F(WrittenByTheAllocator, PagesAreOfThePoolThatAllocatesThere) {
  uint64_t address = 0;
  ASSERT_EQ(allocator->allocate(spillway::testing::kDevice, {8 * kMiB, {}, 5}, &address, nullptr),
            Status::kOk);
  get(4 * kMiB);
  const MemoryHistory told = history();
  const Moment moment = moment_at(told.devices.at(0), SIZE_MAX);
  uint64_t in_the_pool = 0;
  for (const OwnedPiece& piece : moment.pieces)
    if (piece.owner.first == PoolId{5, 0}) in_the_pool += piece.bytes;
  EXPECT_EQ(in_the_pool, 8 * kMiB);
  EXPECT_EQ(moment.contradictions, 0u);
}

TEST_F(WrittenByTheAllocator, AnyRunEndsWithTheAllocatorsOwnCounts) {
  std::mt19937_64 draw(7);
  std::vector<uint64_t> live;
  for (int i = 0; i < 400; ++i) {
    if (live.size() > 12 || (!live.empty() && draw() % 3 == 0)) {
      const size_t which = draw() % live.size();
      put(live[which]);
      live.erase(live.begin() + static_cast<int64_t>(which));
    } else if (const uint64_t address = get(1 + draw() % (draw() % 2 == 0 ? 100 * kKiB : 12 * kMiB))) {
      live.push_back(address);
    }
    if (i % 97 == 0) allocator->empty_cache(spillway::testing::kDevice);
  }
  const MemoryHistory told = history();
  const DeviceHistory& device = told.devices.at(0);
  EXPECT_EQ(told.passed_over, 0u);
  EXPECT_EQ(in_use(device).bytes, memory().live);
  EXPECT_EQ(in_use(device).blocks, live.size());
  EXPECT_EQ(reserved(device), held());
  EXPECT_EQ(moment_at(device, 0).contradictions, 0u);
  EXPECT_EQ(moment_at(device, 0).reserved, 0u);
}

TEST_F(WrittenByTheAllocator, WhatTheRingHasLostIsSaid) {
  open(64);
  const uint64_t lost = get(20 * kMiB), freed = get(7 * kMiB);
  for (int i = 0; i < 100; ++i) put(get(1 * kMiB));
  const uint64_t known = get(30 * kMiB);
  allocator->sample_memory();
  put(freed);
  const MemoryHistory told = history();
  const DeviceHistory& device = told.devices.at(0);
  EXPECT_EQ(device.unknown_bytes, 20 * kMiB);
  EXPECT_THAT(told.incomplete, HasSubstr("20.00 MiB in use on device 0"));
  EXPECT_THAT(told.incomplete, HasSubstr("are lost"));
  EXPECT_EQ(in_use(device).bytes, 30 * kMiB);
  const Moment start = moment_at(device, 0);
  ASSERT_EQ(start.blocks.size(), 1u) << "it was freed in the history, so it was there before";
  EXPECT_EQ(start.blocks[0].requested, 7 * kMiB);
  put(known);
  put(lost);
}

// The program, beside this one.
struct Program : CommandTest {
  void TestBody() override {}
  using CommandTest::run;
};

TEST_F(WrittenByTheAllocator, ACapacityIsAlsoForWhatTheRingHasLost) {
  open(64);
  const uint64_t lost = get(20 * kMiB);
  for (int i = 0; i < 100; ++i) put(get(1 * kMiB));
  const uint64_t known = get(30 * kMiB);
  allocator->sample_memory();
  const auto replayed = [&](const char* capacity) {
    return Program().run({"replay", path_, "--capacity", capacity, "--allocator", "spillway", "--find"});
  };
  EXPECT_THAT(replayed("51MiB").out,
              AllOf(HasSubstr("capacity 31.00 MiB (32505856) of 51.00 MiB\n"), HasSubstr("spillway   yes"),
                    HasSubstr("50.00 MiB (52428800)\n"),
                    HasSubstr("the capacity is smaller by them, the smallest one larger")));
  EXPECT_THAT(replayed("40MiB").out, HasSubstr("spillway   no"));
  EXPECT_THAT(replayed("10MiB").out,
              AllOf(HasSubstr("capacity 0 B of 10.00 MiB\n"), HasSubstr("spillway   no")));
  put(known);
  put(lost);
}

TEST_F(WrittenByTheAllocator, WhatIsHeldIsCountedThoughTheRingHasLostIt) {
  open(64);
  const uint64_t lost = get(20 * kMiB);
  for (int i = 0; i < 100; ++i) put(get(1 * kMiB));
  allocator->sample_memory();
  get(30 * kMiB);
  EXPECT_LT(reserved(history().devices.at(0)), held());
  EXPECT_EQ(history().devices.at(0).held_bytes, held());
  allocator->empty_cache(spillway::testing::kDevice);
  EXPECT_EQ(history().devices.at(0).held_bytes, held());
  put(lost);
}

// Records by hand.
class Written {
 public:
  Record& add(Kind kind, uint64_t address = 0, uint64_t bytes = 0, uint64_t requested = 0) {
    Record record;
    record.kind = kind;
    record.order = ++order_;
    record.address = address;
    record.bytes = bytes;
    record.requested = requested;
    contents.records.push_back(record);
    return contents.records.back();
  }
  void fail(uint32_t incident, trace::Outcome outcome, uint64_t clock_ns) {
    Record& oom = add(Kind::kOom, 0, 4 * kMiB, 4 * kMiB);
    oom.value = incident;
    oom.detail = clock_ns;
    for (const auto& [term, bytes] :
         {std::pair{trace::Term::kLimit, 64 * kMiB}, {trace::Term::kFree, 2 * kMiB}}) {
      Record& equation = add(Kind::kOomEquation, 0, bytes);
      equation.value = incident;
      equation.detail = static_cast<uint64_t>(term);
    }
    Record& end = add(Kind::kLadderOutcome, 500);
    end.value = incident;
    end.detail = static_cast<uint64_t>(outcome);
  }
  DeviceHistory device() const {
    MemoryHistory history = history_of(contents);
    return history.devices.empty() ? DeviceHistory{} : history.devices.begin()->second;
  }
  trace::Contents contents;

 private:
  uint64_t order_ = 0;
};

TEST(TraceHistory, FailuresCarryTheClockAndOnlyWhatWasNotRescuedFailed) {
  Written trace;
  trace.add(Kind::kAllocate, 2 * kMiB, kMiB, kMiB);
  trace.fail(1, trace::Outcome::kGranted, 5'000'000);
  trace.add(Kind::kAllocate, 4 * kMiB, kMiB, kMiB);
  trace.fail(2, trace::Outcome::kGiveUp, 9'000'000);
  trace.add(Kind::kFree, 4 * kMiB, kMiB, kMiB);
  const DeviceHistory device = trace.device();
  std::vector<Action> actions;
  uint64_t before = 0;
  for (const HistoryEvent& event : device.events) {
    actions.push_back(event.action);
    EXPECT_GE(event.microseconds, before);
    before = event.microseconds;
  }
  using enum Action;
  EXPECT_THAT(actions,
              ElementsAre(kAllocate, kOther, kAllocate, kOutOfMemory, kFreeRequested, kFreeCompleted));
  EXPECT_EQ(device.events[1].microseconds, 5000u);
  EXPECT_GT(device.events[2].microseconds, 5500u);
  EXPECT_LT(device.events[2].microseconds, 9000u);
  EXPECT_EQ(device.events[3].microseconds, 9000u);
  EXPECT_EQ(device.events[3].address, 62 * kMiB) << "64 of room; one page has a block at the end";
  EXPECT_EQ(device.events[5].microseconds, 9500u);
}

TEST(TraceHistory, StepsAndSamplesOfMemoryCarryTheClockToo) {
  Written trace;
  trace.add(Kind::kStepBegin, 1).detail = 7'000'000;
  trace.add(Kind::kAllocate, 2 * kMiB, kMiB, kMiB);
  trace.add(Kind::kAllocate, 4 * kMiB, kMiB, kMiB);
  trace.fail(1, trace::Outcome::kGiveUp, 8'000'000);
  trace.add(Kind::kAllocate, 6 * kMiB, kMiB, kMiB);
  trace.add(Kind::kMemory).detail = 20'000'000;
  const DeviceHistory device = trace.device();
  std::vector<uint64_t> times;
  for (const HistoryEvent& event : device.events) times.push_back(event.microseconds);
  EXPECT_THAT(times, ElementsAre(7333, 7666, 8000, 14250));
}

TEST_F(WrittenByTheAllocator, ASampleOfMemoryHasAClock) {
  put(get(20 * kMiB));
  allocator->sample_memory();
  EXPECT_GT(history().devices.at(0).events.back().microseconds, 0u);
}

TEST(TraceHistory, StepsAreCountedWithoutAClock) {
  Written trace;
  for (int step = 0; step < 6; ++step) {
    trace.add(Kind::kStepBegin, static_cast<uint64_t>(step));
    trace.add(Kind::kAllocate, (2 + static_cast<uint64_t>(step)) * 2 * kMiB, kMiB, kMiB);
  }
  MemoryHistory history = history_of(trace.contents);
  const auto found = look_into(history, std::nullopt);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, 6u);
  ASSERT_TRUE(found->holders[0].growth);
  EXPECT_EQ(found->holders[0].growth->bytes_per_step, kMiB);
}

// In each step an optimizer begins, and of each a block stays.
Written optimizer_steps(int steps, int blocks_afterwards) {
  Written trace;
  uint64_t address = 0;
  const auto keep = [&] { trace.add(Kind::kAllocate, address += 2 * kMiB, kMiB, kMiB); };
  for (int step = 0; step < steps; ++step) {
    trace.add(Kind::kOptimizerStep);
    keep();
  }
  for (int i = 0; i < blocks_afterwards; ++i) keep();
  return trace;
}

TEST(TraceHistory, AnOptimizersStepsAreTheProgramsWhereItMarksNone) {
  Written trace = optimizer_steps(6, 0);
  EXPECT_EQ(look_into(history_of(trace.contents), std::nullopt)->steps, 6u);
  trace.add(Kind::kStepBegin, 0);
  trace.add(Kind::kAllocate, 64 * kMiB, kMiB, kMiB);
  EXPECT_EQ(look_into(history_of(trace.contents), std::nullopt)->steps, 1u);
}

TEST(TraceHistory, WhatComesLongAfterAnOptimizersStepsIsNoStepOfIt) {
  EXPECT_EQ(look_into(history_of(optimizer_steps(6, 3).contents), std::nullopt)->steps, 6u);
  EXPECT_EQ(look_into(history_of(optimizer_steps(6, 30).contents), std::nullopt)->steps, 0u);
}

TEST(TraceHistory, AFreeThatWasLostIsInferredFromWhatFollows) {
  Written trace;
  trace.add(Kind::kAllocate, 2 * kMiB, 4 * kMiB, 4 * kMiB);
  trace.add(Kind::kAllocate, 3 * kMiB, kMiB, kMiB);
  const DeviceHistory device = trace.device();
  EXPECT_EQ(in_use(device).bytes, kMiB);
  EXPECT_EQ(moment_at(device, 0).contradictions, 0u);
  EXPECT_THAT(history_of(trace.contents).incomplete, HasSubstr("1 free is known by what came after"));
}

TEST(TraceHistory, StacksOfTheSideTableBecomeFrames) {
  Written trace;
  trace.contents.names[3] = "model.py:47 forward\ntrain.py:9 <module>\nlibc10.so\n";
  trace.add(Kind::kAllocate, 2 * kMiB, kMiB, kMiB);
  trace.add(Kind::kSite, 2 * kMiB, kMiB, 0).detail = 3;
  trace.add(Kind::kAllocate, 4 * kMiB, kMiB, kMiB);
  trace.add(Kind::kSite, 4 * kMiB, kMiB, 0).detail = 9;  // no such name
  trace.add(Kind::kSite, 6 * kMiB, kMiB, 0).detail = 3;  // no such block
  trace.add(Kind::kFree, 2 * kMiB, kMiB, kMiB);
  trace.add(Kind::kAllocate, 2 * kMiB, kMiB, kMiB);  // not sampled
  const MemoryHistory history = history_of(trace.contents);
  const auto& events = history.devices.at(0).events;
  ASSERT_EQ(history.stacks[events[0].stack].size(), 3u);
  EXPECT_EQ(history.stacks[events[0].stack][0], (StackFrame{"forward", "model.py", 47}));
  EXPECT_EQ(history.stacks[events[0].stack][2], (StackFrame{"libc10.so", "", 0}));
  EXPECT_EQ(events[1].stack, 0u);
  EXPECT_EQ(events.back().stack, 0u) << "an address that is given out again";
}

// Of nine blocks that stay and twice as many that pass every third has a place.
Written sampled_trace() {
  Written trace;
  trace.contents.names = {{1, "keep.py:1 keep\n"}, {2, "pass.py:2 pass\n"}};
  for (uint64_t i = 0; i < 9; ++i) {
    const uint64_t stays = (2 + 4 * i) * 2 * kMiB, passes = (4 + 4 * i) * 2 * kMiB, too = passes + 2 * kMiB;
    for (const auto& [address, name] : {std::pair{stays, 1u}, {passes, 2u}, {too, 2u}}) {
      trace.add(Kind::kAllocate, address, kMiB + i * 512, kMiB + i * 512);
      if (i % 3 == 0) trace.add(Kind::kSite, address, 3 * kMiB).detail = name;
    }
    for (const uint64_t address : {passes, too})
      trace.add(Kind::kFree, address, kMiB + i * 512, kMiB + i * 512);
  }
  return trace;
}

TEST(TraceHistory, WhatHasNoPlaceCountsToThatOfBlocksOfItsSizeWithItsFate) {
  const Written trace = sampled_trace();
  const MemoryHistory history = history_of(trace.contents);
  for (const HistoryEvent& event : history.devices.at(0).events) {
    const bool stays = event.address / (2 * kMiB) % 4 == 2;
    EXPECT_EQ(history.stacks[event.stack].at(0).file, stays ? "keep.py" : "pass.py") << event.address;
  }
  const auto found = look_into(history, std::nullopt);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->holders[0].where, "keep.py:1 keep");
  EXPECT_EQ(found->holders[0].blocks, 9u);
  ASSERT_EQ(found->at_peak.size(), 2u) << "backwards the free says whose the block was";
  EXPECT_EQ(found->at_peak[1].where, "pass.py:2 pass");
}

TEST(TraceHistory, WhereEveryPlaceWasTakenNoneIsGuessed) {
  Written trace = sampled_trace();
  trace.contents.settings["stacks"] = "all";
  const MemoryHistory history = history_of(trace.contents);
  EXPECT_EQ(look_into(history, std::nullopt)->holders[0].blocks, 6u);
  EXPECT_THAT(history.without_stack, HasSubstr("a thread without a Python stack"));
}

TEST(TraceHistory, BlocksThatAreLikeOnesWithoutAPlaceHaveNone) {
  Written trace = sampled_trace();
  for (Record& record : trace.contents.records)
    if (record.kind == Kind::kSite && record.detail == 1) record.detail = 0;
  const auto found = look_into(history_of(trace.contents), std::nullopt);
  EXPECT_EQ(found->holders.size(), 1u);
  EXPECT_THAT(found->holders[0].where, HasSubstr("was not taken"));
}

TEST(TraceHistory, AFailureWhoseRingHasLostPagesHasWhatTheAllocatorHadFree) {
  Written trace;
  trace.contents.overwritten = 100;
  trace.add(Kind::kAllocate, 2 * kMiB, kMiB, kMiB);
  trace.fail(1, trace::Outcome::kGiveUp, 9'000'000);
  EXPECT_EQ(trace.device().events[1].address, 2 * kMiB) << "by the pages that are known it would be 62";
}

TEST(TraceHistory, AnotherLibrarysCallIsNoRequestOfTheHistory) {
  Written trace;
  trace.contents.names[5] = "libnccl.so.2";
  trace.add(Kind::kAllocate, 2 * kMiB, kMiB, kMiB);
  trace.fail(1, trace::Outcome::kGiveUp, 9'000'000);
  Record& context = trace.add(Kind::kOomContext);
  context.value = 1, context.detail = 5;
  Record& device = trace.add(Kind::kOomEquation, 0, 64 * kMiB);
  device.value = 1, device.detail = static_cast<uint64_t>(trace::Term::kDevice);
  EXPECT_EQ(trace.device().events[1].action, Action::kOther);
}

TEST(TraceHistory, RecordsThatMakeNoSenseAreSurvived) {
  std::mt19937_64 draw(11);
  const auto number = [&]() -> uint64_t {
    const uint64_t some[] = {0, 1, 512, 2 * kMiB, draw() % 64 * kMiB, UINT64_MAX, UINT64_MAX - 511, draw()};
    return some[draw() % std::size(some)];
  };
  for (int round = 0; round < 300; ++round) {
    Written trace;
    for (int i = 0; i < 60; ++i) {
      Record& record = trace.add(static_cast<Kind>(draw() % 26), number(), number(), number());
      record.stream = number();
      record.detail = draw() % 4 == 0 ? number() : draw() % 15;
      record.value = static_cast<uint32_t>(draw() % 4);
      record.device = static_cast<uint8_t>(draw() % 3);
    }
    const MemoryHistory history = history_of(trace.contents);
    for (const auto& [number, device] : history.devices) {
      in_use(device);
      moment_at(device, 0);
    }
    look_into(history, std::nullopt);
  }
}

// More records than a part of a list holds, so that parts are given back while they are read.
TEST_F(WrittenByTheAllocator, TakingTheRecordsOfALargeTraceLosesNone) {
  open(1 << 15);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40'000; ++i) {
    if (blocks.size() == 8) {
      put(blocks.front());
      blocks.erase(blocks.begin());
    }
    blocks.push_back(get(static_cast<uint64_t>(512 * (1 + i % 5))));
  }
  trace::Contents contents;
  std::string error;
  ASSERT_TRUE(trace::read(path_, &contents, &error)) << error;
  ASSERT_GT(contents.records.size(), 1u << 15);
  ASSERT_GT(contents.overwritten, 0u);
  const MemoryHistory kept = history_of(contents), taken = take_history(&contents);
  EXPECT_TRUE(contents.records.empty());
  EXPECT_EQ(taken.incomplete, kept.incomplete);
  EXPECT_EQ(taken.passed_over, kept.passed_over);
  const DeviceHistory &here = kept.devices.at(0), &there = taken.devices.at(0);
  EXPECT_EQ(there.unknown_bytes, here.unknown_bytes);
  ASSERT_EQ(there.events.size(), here.events.size());
  for (size_t i = 0; i < here.events.size(); ++i) {
    ASSERT_EQ(there.events[i].action, here.events[i].action) << i;
    ASSERT_EQ(there.events[i].address, here.events[i].address) << i;
    ASSERT_EQ(there.events[i].size, here.events[i].size) << i;
  }
  EXPECT_EQ(in_use(there).bytes, in_use(here).bytes);
  EXPECT_EQ(in_use(there).blocks, 8u);
}

}  // namespace
}  // namespace spillway::tools
