// The ladder: order, bounds, guarantees, the breaker; and what the built-in strategies do on the simulated
// device.
#include "strategies/ladder/ladder.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <thread>

#include "allocator/tiers/gate.h"
#include "tests/allocator/simulated.h"
#include "trace/reader.h"

namespace spillway::testing {
namespace {

struct Fake : Strategy {
  StrategyInfo about;
  Offer offered;
  std::function<uint64_t()> work = [] { return uint64_t{0}; };
  std::vector<std::string>* log = nullptr;
  const char* why_failed = "";
  StrategyInfo info() const noexcept override { return about; }
  Offer offer(const PendingRequest&) noexcept override { return offered; }
  Relief relieve(PendingRequest&) noexcept override {
    log->push_back(std::string(about.name));
    return {work(), (about.needs & kNeedsUnwinding) != 0, "", why_failed};
  }
};

class LadderTest : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    use({});
    allocator->limit(kDevice, 32 * kMiB);
  }

  void use(LadderOptions options) {
    ladder = std::make_unique<Ladder>(*allocator, options);
    allocator->set_handler(ladder.get());
  }

  Fake* add(std::string_view name, uint64_t bytes, uint64_t cost_us,
            Guarantee guarantee = Guarantee::kBitExact, uint32_t needs = kNeedsNothing) {
    auto fake = std::make_unique<Fake>();
    fake->about = {name, guarantee, needs};
    fake->offered = {bytes, cost_us, /*counted=*/false};
    fake->log = &log;
    Fake* raw = fake.get();
    last_id = ladder->add(std::move(fake));
    return raw;
  }

  void add_built_in() {
    ladder->add(make_wait_for_events());
    ladder->add(make_stitch());
    ladder->add(make_release_cache(*allocator));
  }

  // Eight blocks of 4 MiB fill the limit; every second one is freed.
  std::vector<uint64_t> checkerboard(StreamId stream = {}) {
    std::vector<uint64_t> blocks;
    blocks.reserve(8);
    for (int i = 0; i < 8; ++i) blocks.push_back(get(4 * kMiB, stream));
    for (size_t i = 0; i < 8; i += 2) put(blocks[i]);
    return blocks;
  }

  uint64_t tried(const std::string& name) {
    for (const StrategyCounts& counts : ladder->counts())
      if (counts.name == name) return counts.tried;
    return 0;
  }

  using Names = std::vector<std::string>;
  std::unique_ptr<Ladder> ladder;
  Names log;
  StrategyId last_id{};
};

TEST_F(LadderTest, TakesWhatNobodyUsesBeforeWhatIsInUseWhateverItCosts) {
  add("hope", 64 * kMiB, 0)->offered.takes = Takes::kSpeculative;
  add("in use", 64 * kMiB, 10)->offered.takes = Takes::kInUse;
  add("others' idle", 64 * kMiB, 1'000'000)->offered.takes = Takes::kOthersIdle;
  add("idle, dearer", 64 * kMiB, 9'000'000)->offered.takes = Takes::kIdle;
  add("idle", 64 * kMiB, 5'000'000, Guarantee::kNumericallyEqual)->offered.takes = Takes::kIdle;
  add("move", 64 * kMiB, 0, Guarantee::kBitExact, kNeedsUnwinding)->offered.takes = Takes::kIdle;
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"idle, dearer", "idle", "others' idle", "in use", "hope", "move"}))
      << "of the idle, costs are alike and the guarantee decides";
}

TEST_F(LadderTest, WhatWouldBeTooSlowIsTheLastResortAndSaidOnce) {
  Fake* slow = add("slow", 64 * kMiB, 0);
  slow->offered.takes = Takes::kSlow;
  std::snprintf(slow->offered.why_not, sizeof slow->offered.why_not, "15 times as long");
  add("hope", 64 * kMiB, 0)->offered.takes = Takes::kSpeculative;
  add("in use", 64 * kMiB, 1'000'000);
  std::vector<uint64_t> held;
  slow->work = [&] {
    for (const uint64_t block : held) allocator->free(block);
    return 30 * kMiB;
  };
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    held = {get(30 * kMiB)};
    log.clear();
    const uint64_t block = get(30 * kMiB);
    EXPECT_NE(block, 0u);
    EXPECT_EQ(log, (Names{"in use", "hope", "slow"}));
    allocator->free(block);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "spillway: slow: 15 times as long; it is used, as nothing else gives enough\n");
}

TEST_F(LadderTest, APlanMoveComesBeforeWhatWouldBeTooSlow) {
  Fake* slow = add("slow", 64 * kMiB, 0);
  slow->offered.takes = Takes::kSlow;
  std::snprintf(slow->offered.why_not, sizeof slow->offered.why_not, "15 times as long");
  add("move", 8 * kMiB, 1000, Guarantee::kBitExact, kNeedsUnwinding);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"move"}));
  EXPECT_NE(ladder->story_of(failure->event.incident).find("not slow: 15 times as long"), std::string::npos)
      << ladder->story_of(failure->event.incident);
}

TEST_F(LadderTest, RunsTheCheapestUsefulByteFirstAndPlanMovesLast) {
  add("move", 1 << 30, 1, Guarantee::kBitExact, kNeedsUnwinding);
  add("dear", 8 * kMiB, 100000);
  add("small", 1 * kMiB, 5000);  // cheap, but not per byte
  add("cheap", 8 * kMiB, 100);
  add("empty", 0, 0);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(status, Status::kUnwind);
  EXPECT_EQ(log, (Names{"cheap", "small", "dear", "move"}));
  EXPECT_EQ(memory().unwound, 1u);
}

TEST_F(LadderTest, WhatIsOfferedBeyondTheNeedMakesNothingCheaper) {
  add("far too much", 1 << 30, 100'000);
  add("enough", 8 * kMiB, 10'000);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"enough", "far too much"}));
}

TEST_F(LadderTest, ACostBeyondAllMeasureIsTheDearest) {
  add("never", 8 * kMiB, UINT64_MAX);
  add("nearly never", 8 * kMiB, uint64_t{1} << 44);
  add("dear", 8 * kMiB, 100'000);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log.front(), "dear");
}

TEST_F(LadderTest, StopsAsSoonAsTheRequestIsServed) {
  const uint64_t block = get(30 * kMiB);
  add("first", kMiB, 1)->work = [&] {
    allocator->free(block);
    return 30 * kMiB;
  };
  add("second", kMiB, 1000);
  EXPECT_NE(get(30 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"first"}));
}

TEST_F(LadderTest, PrefersTheStrongerGuaranteeAtSimilarCost) {
  add("equal", 8 * kMiB, 300, Guarantee::kNumericallyEqual, kNeedsUnwinding);
  add("exact", 8 * kMiB, 900, Guarantee::kBitExact, kNeedsUnwinding);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"exact"}));
  add("far cheaper", 8 * kMiB, 1, Guarantee::kNumericallyEqual, kNeedsUnwinding);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log.back(), "far cheaper");
}

TEST_F(LadderTest, RefusesWhatTheProgramDoesNotAccept) {
  add("statistics", 8 * kMiB, 1, Guarantee::kStatisticsChange);
  add("equal", 8 * kMiB, 1, Guarantee::kNumericallyEqual);
  ladder->allow(Guarantee::kNumericallyEqual);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"equal"}));
}

TEST_F(LadderTest, GivesAStrategyWhatItNeedsOrDoesNotRunIt) {
  add("gate", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsGate);
  add("ranks", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsRanks);
  const StreamId stream = new_stream();
  const uint64_t block = get(kMiB, stream);
  launch(stream, block, kMiB, 5'000'000);
  add("idle", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsIdleDevice)->work = [&] {
    EXPECT_EQ(table.cuStreamQuery(reinterpret_cast<CUstream>(stream)), CUDA_SUCCESS);
    return uint64_t{0};
  };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"idle"}));
}

// A thread that passed the gate just before it closed has begun a capture.
struct LateCapture final : Gate {
  bool close(std::chrono::steady_clock::time_point) noexcept override {
    ++closed;
    captured = 1;
    return true;
  }
  void open() noexcept override { ++opened; }
  uint32_t captures() noexcept override { return captured; }
  uint32_t captured = 0;
  int closed = 0, opened = 0;
};

TEST_F(LadderTest, NothingRunsAtAStandstillThatACaptureBeganBefore) {
  LateCapture late;
  ladder->set_gate(&late);
  add("gate", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsGate);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, Names{});
  EXPECT_FALSE(
      ladder->at_rest([&] { log.emplace_back("at rest"); }, std::chrono::steady_clock::time_point::max()));
  late.captured = 0;
  EXPECT_FALSE(
      ladder->at_rest([&] { log.emplace_back("at rest"); }, std::chrono::steady_clock::time_point::max()));
  EXPECT_EQ(log, Names{});
  EXPECT_GT(late.closed, 0);
  EXPECT_EQ(late.opened, late.closed);
}

TEST_F(LadderTest, IsBoundedInSteps) {
  LadderOptions options;
  options.most_steps = 5;
  use(options);
  add("liar", 8 * kMiB, 1)->work = [] { return kMiB; };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(log.size(), 5u);
}

TEST_F(LadderTest, WhatGainsNothingIsNotAskedAgain) {
  add("useless", 8 * kMiB, 1);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log.size(), 1u);
}

TEST_F(LadderTest, WhatCountedItsBytesHasASecondChanceWhenNothingElseIsLeft) {
  const uint64_t block = get(30 * kMiB);
  Fake* once = add("fails once", 8 * kMiB, 1);
  once->offered.counted = true;
  once->work = [&] {
    if (std::count(log.begin(), log.end(), "fails once") == 1) return uint64_t{0};
    allocator->free(block);
    return 30 * kMiB;
  };
  add("hopes", 8 * kMiB, 1000);
  EXPECT_NE(get(30 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"fails once", "hopes", "fails once"}));
}

TEST_F(LadderTest, WhatCountedItsBytesIsAskedAgainAfterProgress) {
  Fake* first = add("first", 8 * kMiB, 1);
  first->offered.counted = true;
  Fake* second = add("second", 8 * kMiB, 1000);
  second->offered.counted = true;
  second->work = [&] { return std::count(log.begin(), log.end(), "second") == 1 ? kMiB : 0; };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"first", "second", "first", "second", "first", "second"}))
      << "progress, then nothing, then the second chances";
}

TEST_F(LadderTest, WhyARunFailedIsToldRatherThanWhatWasOfferedLater) {
  Fake* fails = add("fails", 8 * kMiB, 1);
  fails->offered.counted = true;
  fails->why_failed = "the disk is full";
  fails->work = [&] {
    fails->offered = {.bytes = 0, .cost_us = 0, .counted = true, .why_not = "nothing is left"};
    return uint64_t{0};
  };
  add("has none", 0, 0)->offered = {.bytes = 0, .cost_us = 0, .counted = true, .why_not = "there is no disk"};
  EXPECT_EQ(get(40 * kMiB), 0u);
  const std::string story = ladder->story_of(failure->event.incident);
  EXPECT_NE(story.find("not fails: the disk is full"), std::string::npos) << story;
  EXPECT_NE(story.find("not has none: there is no disk"), std::string::npos) << story;
}

TEST_F(LadderTest, SecondChancesEnd) {
  for (const char* name : {"a", "b", "c"}) add(name, 8 * kMiB, 1)->offered.counted = true;
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(log.size(), 6u);
}

TEST_F(LadderTest, WhatIsUselessAgainAndAgainComesLast) {
  add("useless", 8 * kMiB, 1);
  for (int i = 0; i < 8; ++i) get(40 * kMiB);
  EXPECT_EQ(log.size(), 8u);
  log.clear();
  add("move", 8 * kMiB, 1000, Guarantee::kBitExact, kNeedsUnwinding);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"move"})) << "the breaker is open";
  ladder->remove(last_id);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"move", "useless"})) << "but before giving up it has its chance";
}

TEST_F(LadderTest, ASecondChanceIsNoIncidentMore) {
  add("useless", 8 * kMiB, 1)->offered.counted = true;
  for (int i = 0; i < 7; ++i) get(40 * kMiB);
  log.clear();
  add("move", 8 * kMiB, 1000, Guarantee::kBitExact, kNeedsUnwinding);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"useless", "useless", "move"})) << "seven incidents do not open the breaker";
}

TEST_F(LadderTest, ASuccessIsTheEndOfABadReputation) {
  Fake* moody = add("moody", 8 * kMiB, 1);
  for (int i = 0; i < 7; ++i) get(40 * kMiB);
  const uint64_t block = get(30 * kMiB);
  moody->work = [&] {
    allocator->free(block);
    return 30 * kMiB;
  };
  ASSERT_NE(get(30 * kMiB), 0u);
  moody->work = [] { return uint64_t{0}; };
  for (int i = 0; i < 7; ++i) get(40 * kMiB);
  log.clear();
  add("move", 8 * kMiB, 1000, Guarantee::kBitExact, kNeedsUnwinding);
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(log, (Names{"moody", "move"})) << "it was useless seven times since it was of use";
}

TEST_F(LadderTest, HandsOutTheChosenMoveOnce) {
  add("move", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsUnwinding);
  get(40 * kMiB);
  ASSERT_EQ(status, Status::kUnwind);
  EXPECT_EQ(ladder->move_of(failure->event.incident), last_id);
  uint64_t incident = 0;
  EXPECT_EQ(ladder->take_chosen_move(&incident), last_id);
  EXPECT_EQ(incident, failure->event.incident);
  EXPECT_EQ(ladder->take_chosen_move(nullptr), StrategyId::kNone);
}

TEST_F(LadderTest, ATakenMoveIsTheThreadsLast) {
  add("first", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsUnwinding);
  get(40 * kMiB);
  ladder->remove(last_id);
  add("second", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsUnwinding);
  get(40 * kMiB);
  EXPECT_EQ(ladder->take_chosen_move(nullptr), last_id);
  EXPECT_EQ(ladder->take_chosen_move(nullptr), StrategyId::kNone) << "the first was chosen long ago";
}

TEST_F(LadderTest, AMoveOfAnotherThreadIsGivenToWhoHasNone) {
  add("move", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsUnwinding);
  const auto unwind_elsewhere = [&] {
    uint64_t unread = 0;
    std::thread([&] { allocator->allocate(kDevice, {40 * kMiB, {}, 0}, &unread, nullptr); }).join();
  };
  for (int backward = 0; backward < 2; ++backward) {
    unwind_elsewhere();
    EXPECT_EQ(ladder->take_chosen_move(nullptr), last_id) << backward;
    EXPECT_EQ(ladder->take_chosen_move(nullptr), StrategyId::kNone);
    get(40 * kMiB);
    EXPECT_EQ(ladder->take_chosen_move(nullptr), last_id) << backward;
  }
}

TEST_F(LadderTest, AMoveOfAnotherThreadStaysThatOnesForWhoHasTakenItsOwn) {
  add("move", 8 * kMiB, 1, Guarantee::kBitExact, kNeedsUnwinding);
  for (const bool other_first : {true, false}) {
    std::promise<void> unwound, ask;
    StrategyId taken = StrategyId::kNone;
    if (!other_first) get(40 * kMiB);
    std::thread other([&] {
      uint64_t unread = 0;
      allocator->allocate(kDevice, {40 * kMiB, {}, 0}, &unread, nullptr);
      unwound.set_value();
      ask.get_future().wait();
      taken = ladder->take_chosen_move(nullptr);
    });
    unwound.get_future().wait();
    if (other_first) get(40 * kMiB);
    EXPECT_EQ(ladder->take_chosen_move(nullptr), last_id);
    EXPECT_EQ(ladder->take_chosen_move(nullptr), StrategyId::kNone) << "the other thread has not asked yet";
    ask.set_value();
    other.join();
    EXPECT_EQ(taken, last_id);
  }
}

TEST_F(LadderTest, StitchesACheckerboard) {
  add_built_in();
  const std::vector<uint64_t> blocks = checkerboard();
  const uint64_t block = get(16 * kMiB);
  ASSERT_NE(block, 0u) << failure->text;
  EXPECT_EQ(memory().reserved, 32 * kMiB);
  EXPECT_EQ(memory().stranded + memory().cached, 0u);
  EXPECT_EQ(tried("stitch"), 1u);
  EXPECT_EQ(tried("release_cache"), 0u);
  for (size_t i = 1; i < 8; i += 2) put(blocks[i]);
  put(block);
}

TEST_F(LadderTest, StitchesOnlyWhatIsShort) {
  add_built_in();
  checkerboard();
  const uint64_t calls = memory().driver_calls;
  ASSERT_NE(get(6 * kMiB), 0u);
  EXPECT_EQ(memory().cached, 10 * kMiB);
  EXPECT_LE(memory().driver_calls - calls, 6u);
}

TEST_F(LadderTest, NeverUnmapsUnderRunningWork) {
  add_built_in();
  const StreamId one = new_stream(), two = new_stream();
  std::vector<uint64_t> blocks;
  blocks.reserve(8);
  for (int i = 0; i < 8; ++i) blocks.push_back(get(4 * kMiB, one));
  for (size_t i = 0; i < 8; i += 2) {
    launch(one, blocks[i], 4 * kMiB, 10'000'000);
    put(blocks[i]);
  }
  const uint64_t block = get(16 * kMiB, two);
  ASSERT_NE(block, 0u) << failure->text;
  launch(two, block, 16 * kMiB);
  EXPECT_EQ(text(control->violations), "");
  EXPECT_GT(counts().virtual_ns, 10'000'000u) << "it waited";
}

// What a new page has left over joins a hole that running work still writes to.
TEST_F(LadderTest, NeverUnmapsAHoleThatTheRestOfAPageHasJoined) {
  allocator->limit(kDevice, 12 * kMiB);
  add_built_in();
  const StreamId one = new_stream(), two = new_stream();
  const uint64_t first = get(4 * kMiB, one), gap = get(2 * kMiB, one), last = get(4 * kMiB, one);
  get(2 * kMiB, one);
  put(gap);
  ASSERT_EQ(allocator->empty_cache(kDevice), 2 * kMiB);
  put(first);
  launch(one, last, 4 * kMiB, 10'000'000);
  put(last);
  ASSERT_EQ(get(5 * kMiB, one), first) << "on a new page, of which 1 MiB is left";
  ASSERT_NE(get(4 * kMiB, two), 0u) << failure->text;
  EXPECT_EQ(text(control->violations), "");
}

TEST_F(LadderTest, TakesWhatIsAtRestThoughMoreIsIdleUnderRunningWork) {
  add_built_in();
  const StreamId busy = new_stream(), quiet = new_stream(), other = new_stream();
  const uint64_t large = get(16 * kMiB, busy), small = get(16 * kMiB, quiet);
  put(small);
  ASSERT_NE(get(8 * kMiB, other), 0u) << failure->text;  // waits for the quiet stream, and leaves half
  launch(busy, large, 16 * kMiB, 10'000'000);
  put(large);
  const uint64_t before = counts().virtual_ns;
  ASSERT_NE(get(8 * kMiB, other), 0u) << failure->text;
  EXPECT_EQ(text(control->violations), "");
  EXPECT_LT(counts().virtual_ns, before + 5'000'000) << "nobody had to wait";
}

TEST_F(LadderTest, ReleasesTheCacheWhereStitchingIsNotAllowed) {
  ladder->add(make_release_cache(*allocator));
  checkerboard();
  ASSERT_NE(get(16 * kMiB), 0u) << failure->text;
  EXPECT_EQ(tried("release_cache"), 1u);
  EXPECT_EQ(counts().live_pages_bytes, 32 * kMiB);
}

TEST_F(LadderTest, WaitsForNoMoreEventsThanItNeeds) {
  add_built_in();
  const StreamId own = new_stream(), other = new_stream();
  std::vector<uint64_t> blocks;
  blocks.reserve(8);
  for (int i = 0; i < 8; ++i) blocks.push_back(get(4 * kMiB, own));
  for (const uint64_t block : blocks) {
    launch(other, block, 4 * kMiB, 1'000'000);
    allocator->record_stream(block, other);
    put(block);
  }
  EXPECT_EQ(memory().pending, 32 * kMiB);
  ASSERT_NE(get(8 * kMiB, own), 0u) << failure->text;
  EXPECT_EQ(memory().pending, 24 * kMiB) << "two of eight were enough";
  EXPECT_EQ(tried("wait_for_events"), 1u);
}

TEST_F(LadderTest, StitchesForADeviceThatIsFullBelowTheLimit) {
  allocator->limit(kDevice, 0);
  set_capacity(32 * kMiB);
  add_built_in();
  checkerboard();
  ASSERT_NE(get(16 * kMiB), 0u) << failure->text;
  EXPECT_EQ(tried("stitch"), 1u);
}

// The simulated driver does not capture, so this table says so for one stream and counts what capturing
// forbids.
struct Capturing {
  static inline const driver::Table* real = nullptr;
  static inline CUstream stream = nullptr;
  static inline int forbidden = 0;

  static CUresult CUDAAPI is_capturing(CUstream asked, CUstreamCaptureStatus* status) {
    const bool captured = stream != nullptr && asked == stream;
    *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  static CUresult CUDAAPI record(CUevent event, CUstream on) {
    forbidden += stream != nullptr && on == stream ? 1 : 0;
    return real->cuEventRecord(event, on);
  }
  static CUresult CUDAAPI query(CUevent event) {
    forbidden += stream != nullptr ? 1 : 0;
    return real->cuEventQuery(event);
  }
  static CUresult CUDAAPI unmap(CUdeviceptr address, size_t bytes) {
    forbidden += stream != nullptr ? 1 : 0;
    return real->cuMemUnmap(address, bytes);
  }
};

TEST_F(LadderTest, LeavesACaptureAlone) {
  driver::Table capturing = table;
  Capturing::real = &table;
  capturing.cuStreamIsCapturing = Capturing::is_capturing;
  capturing.cuEventRecord = Capturing::record;
  capturing.cuEventQuery = Capturing::query;
  capturing.cuMemUnmap = Capturing::unmap;
  allocator = std::make_unique<Allocator>(capturing);
  use({});
  add_built_in();
  allocator->limit(kDevice, 32 * kMiB);
  const StreamId own = new_stream(), other = new_stream();
  const uint64_t shared = get(kMiB, own);
  checkerboard(own);
  EXPECT_EQ(status, Status::kOutOfMemory) << "the last block of the board does not fit";

  Capturing::stream = reinterpret_cast<CUstream>(own);
  EXPECT_EQ(get(12 * kMiB, own), 0u) << "no page is moved while its stream is captured";
  EXPECT_EQ(Capturing::forbidden, 0);
  Capturing::stream = reinterpret_cast<CUstream>(other);
  allocator->record_stream(shared, other);
  put(shared);
  EXPECT_EQ(Capturing::forbidden, 0) << "the event would become part of the graph";
  EXPECT_EQ(memory().pending, kMiB);
  Capturing::stream = nullptr;
  EXPECT_NE(get(12 * kMiB, own), 0u);
  EXPECT_EQ(memory().pending, 0u) << "the event was recorded when the capture had ended";
  allocator.reset();
}

// Growth of a small part of the card is not recorded by itself.
TEST_F(LadderTest, TheTraceHasAPeakThatWasReset) {
  set_capacity(1024 * kMiB);
  ladder.reset();
  restart();
  const std::string path = ::testing::TempDir() + "peaks.trace";
  std::remove(path.c_str());
  std::string error;
  std::unique_ptr<trace::Trace> trace = trace::Trace::open(path, {}, &error);
  ASSERT_NE(trace, nullptr) << error;
  allocator->set_trace(trace.get());
  const uint64_t block = get(kMiB);
  for (int i = 0; i < 3; ++i) allocator->reset_peaks(kDevice);
  put(block);
  allocator->set_trace(nullptr);
  trace.reset();
  trace::Contents contents;
  ASSERT_TRUE(trace::read(path, &contents, &error)) << error;
  std::remove(path.c_str());
  std::vector<uint64_t> peaks;
  for (const trace::Record& record : contents.records)
    if (record.kind == trace::Kind::kMemory) peaks.push_back(record.stream);
  EXPECT_EQ(peaks, std::vector<uint64_t>{kPage});
}

TEST_F(LadderTest, RecordsTheIncident) {
  const std::string path = ::testing::TempDir() + "ladder.trace";
  std::remove(path.c_str());
  std::string error;
  std::unique_ptr<trace::Trace> trace = trace::Trace::open(path, {}, &error);
  ASSERT_NE(trace, nullptr) << error;
  allocator->set_trace(trace.get());
  ladder->set_phase_source([] { return "backward"; });
  add_built_in();
  checkerboard();
  ASSERT_NE(get(16 * kMiB), 0u);
  EXPECT_EQ(get(64 * kMiB), 0u);
  allocator->set_trace(nullptr);
  trace.reset();
  trace::Contents contents;
  ASSERT_TRUE(trace::read(path, &contents, &error)) << error;
  std::remove(path.c_str());
  std::map<trace::Kind, int> kinds;
  uint64_t limit = 0, terms = 0, last = 0;
  for (const trace::Record& record : contents.records) {
    ++kinds[record.kind];
    EXPECT_GE(record.order, last);
    last = record.order;
    if (record.kind == trace::Kind::kLadderStep) {
      EXPECT_EQ(contents.names[record.detail], "stitch");
      EXPECT_EQ(record.flags, 1);
      EXPECT_EQ(record.value, 1u);
      EXPECT_EQ(record.bytes, 16 * kMiB);
    }
    if (record.kind != trace::Kind::kOomEquation || record.value != 1) continue;
    if (record.detail == static_cast<uint64_t>(trace::Term::kLimit))
      limit = record.bytes;
    else if (record.detail <= static_cast<uint64_t>(trace::Term::kFree))
      terms += record.bytes;
  }
  EXPECT_EQ(limit, 32 * kMiB);
  EXPECT_EQ(terms, limit);
  EXPECT_EQ(kinds[trace::Kind::kOom], 2);
  EXPECT_EQ(kinds[trace::Kind::kLadderOutcome], 2);
  EXPECT_EQ(kinds[trace::Kind::kAllocate], 9);
  EXPECT_EQ(kinds[trace::Kind::kFree], 4);
  EXPECT_EQ(kinds[trace::Kind::kPageCreate], 16);
  EXPECT_GE(kinds[trace::Kind::kPageUnmap], 1);
}

}  // namespace
}  // namespace spillway::testing
