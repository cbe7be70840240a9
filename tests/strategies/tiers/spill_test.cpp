// Cold blocks' memory goes to the host when a request is short, and comes back when there is room.
#include <map>

#include "tests/sanitized.h"
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

TEST_F(Spill, ServesWhatNoFreePageCould) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_GE(memory().spilled, 18 * kMiB);
  EXPECT_LE(memory().reserved, 32 * kMiB);
  EXPECT_EQ(spilled_bytes(*allocator, Tier::kHost), memory().spilled);
  EXPECT_EQ(memory().rescued, 1u);
  EXPECT_EQ(gate.closed, 1);
  EXPECT_EQ(gate.opened, 1);
  put(more);
  for (const uint64_t block : blocks) put(block);
  EXPECT_NE(get(32 * kMiB), 0u) << "the pages behind freed blocks are the device's again";
  EXPECT_EQ(memory().spilled, 0u);
}

TEST_F(Spill, TakesWhatWasUsedAMomentAgoLast) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  EXPECT_EQ(get(60 * kMiB), 0u) << "uses are known from now on";
  for (int i = 0; i < 20; ++i) touch(*allocator, blocks[0]);
  let_time_pass();
  touch(*allocator, blocks[1]);
  touch(*allocator, blocks[2]);
  ASSERT_NE(get(6 * kMiB), 0u);
  put(blocks[1]);
  put(blocks[2]);
  let_time_pass();
  EXPECT_EQ(memory().spilled, 6 * kMiB) << "the one of many uses, of which the last was long ago";
  put(blocks[0]);
}

TEST_F(Spill, TakesTheColdestFirst) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  EXPECT_EQ(get(60 * kMiB), 0u) << "uses are known from now on";
  for (int round = 0; round < 20; ++round) {
    let_time_pass(20);
    touch(*allocator, blocks[0]);
    touch(*allocator, blocks[2]);
  }
  ASSERT_NE(get(6 * kMiB), 0u) << failure->text;
  put(blocks[0]);
  put(blocks[2]);
  let_time_pass();
  EXPECT_EQ(memory().spilled, 6 * kMiB) << "the one that nobody used went";
  put(blocks[1]);
  let_time_pass();
  EXPECT_EQ(memory().spilled, 0u);
}

TEST_F(Spill, OfWhatNobodyUsedLatelyTheLeastUsedGoesFirst) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  EXPECT_EQ(get(60 * kMiB), 0u) << "uses are known from now on";
  for (int i = 0; i < 20; ++i) {
    let_time_pass(2);
    for (const size_t block : {0, 2}) touch(*allocator, blocks[block]);
  }
  touch(*allocator, blocks[1]);
  let_time_pass(200);
  ASSERT_NE(get(6 * kMiB), 0u) << failure->text;
  put(blocks[0]);
  put(blocks[2]);
  let_time_pass();
  EXPECT_EQ(memory().spilled, 6 * kMiB) << "the one of the fewest uses went";
  put(blocks[1]);
}

TEST_F(Spill, NeverMovesWhatIsPinnedOrShared) {
  static uint64_t pinned = 0;
  const auto blocks = blocks_of(10 * kMiB, 3);
  pinned = blocks[0] + kMiB;
  set_pins(*allocator, [] {
    Pins pins;
    pins.add(pinned, 1);
    return pins;
  });
  SharedBlock shared;
  std::string text;
  ASSERT_EQ(allocator->share(blocks[1], &shared, &text), Status::kOk) << text;
  let_time_pass();
  EXPECT_EQ(get(14 * kMiB), 0u) << "12 MiB at most";
  ASSERT_NE(get(10 * kMiB), 0u);
  EXPECT_EQ(memory().spilled, 10 * kMiB);
  ASSERT_EQ(allocator->share(blocks[2], &shared, &text), Status::kOk) << text;
  EXPECT_GE(memory().spilled, 8 * kMiB) << "what was used last went for it";
  let_time_pass();
  EXPECT_EQ(get(8 * kMiB), 0u) << "all that is left is pinned, shared or elsewhere";
}

// NCCL may know the memory, whatever lies there.
TEST_F(Spill, NeverMovesWhatIsPinnedAndFree) {
  static uint64_t pinned = 0;
  const auto blocks = blocks_of(10 * kMiB, 3);
  pinned = blocks[0];
  set_pins(*allocator, [] {
    Pins pins;
    pins.add(pinned, 10 * kMiB);
    return pins;
  });
  put(blocks[0]);
  put(blocks[2]);
  EXPECT_EQ(allocator->empty_cache(kDevice), 10 * kMiB) << "of the other one";
  EXPECT_EQ(get(24 * kMiB), 0u) << "32 MiB at most, of which 10 are pinned";
  EXPECT_EQ(get(10 * kMiB), blocks[0]);
}

TEST_F(Spill, AsksForPinsNoMoreOftenForMoreBlocks) {
  static int asked = 0;
  set_pins(*allocator, [] {
    ++asked;
    return Pins{};
  });
  std::vector<int> times;
  for (const int count : {3, 12}) {
    asked = 0;
    const auto blocks = blocks_of(30 * kMiB / static_cast<unsigned>(count) / kPage * kPage, count);
    let_time_pass();
    const uint64_t more = get(26 * kMiB);
    ASSERT_NE(more, 0u) << failure->text;
    times.push_back(asked);
    put(more);
    for (const uint64_t block : blocks) put(block);
    let_time_pass();
    allocator->empty_cache(kDevice);
  }
  EXPECT_GT(times.front(), 0);
  EXPECT_EQ(times.front(), times.back());
}

TEST(PinnedAddresses, CoverWhatTheyOverlap) {
  Pins pins;
  EXPECT_FALSE(pins.cover(0, UINT64_MAX));
  pins.add(100, 1000);  // over the next two
  pins.add(200, 10);
  pins.add(300, 10);
  pins.add(2000, 10);
  pins.add(UINT64_MAX - 4, 100);
  for (const uint64_t address : {91, 100, 150, 305, 900, 1099, 1995, 2009})
    EXPECT_TRUE(pins.cover(address, 10));
  for (const uint64_t address : {80, 90, 1100, 1990, 2010}) EXPECT_FALSE(pins.cover(address, 10)) << address;
  EXPECT_TRUE(pins.cover(UINT64_MAX - 2, 1));
}

TEST_F(Spill, KeepsToTheBudgetOfHostMemory) {
  with({.host_bytes = 8 * kMiB, .available = nullptr, .most_slowdown = 0});
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  EXPECT_EQ(get(14 * kMiB), 0u) << "two pages too many";
  const uint64_t incident = failure->event.incident;
  EXPECT_NE(ladder->story_of(incident).find("of the budget of host memory 8.00 MiB are left"),
            std::string::npos)
      << ladder->story_of(incident);
  EXPECT_NE(get(8 * kMiB), 0u) << failure->text;
  EXPECT_EQ(memory().spilled, 8 * kMiB);
  let_time_pass();
  EXPECT_EQ(get(4 * kMiB), 0u) << "nothing is left of it";
}

TEST_F(Spill, NeedsTheGateAndNoCapture) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  ladder->set_gate(nullptr);
  EXPECT_EQ(get(20 * kMiB), 0u);
  ladder->set_gate(&gate);
  gate.can_close = false;
  EXPECT_EQ(get(20 * kMiB), 0u);
  gate.can_close = true;
  gate.captured = 1;
  EXPECT_EQ(get(20 * kMiB), 0u);
  gate.captured = 0;
  EXPECT_NE(get(20 * kMiB), 0u);
  EXPECT_EQ(gate.opened, gate.closed);
}

TEST_F(Spill, WaitsForWhatIsQueued) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  const StreamId stream = new_stream();
  for (const uint64_t block : blocks) launch(stream, block, 10 * kMiB, 50'000);
  let_time_pass();
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_EQ(text(control->violations), "") << "pages were moved under a kernel";
}

TEST_F(Spill, ComesBackWhenThereIsRoomForLong) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  const uint64_t more = get(20 * kMiB);
  let_time_pass();
  EXPECT_EQ(returnable_bytes(*allocator, kDevice), 0u) << "no room";
  put(more);
  EXPECT_EQ(returnable_bytes(*allocator, kDevice), 0u) << "not for long";
  let_time_pass(25'000);
  while (unspill(*allocator, kDevice) != 0) check();
  EXPECT_EQ(memory().spilled, 0u);
  EXPECT_LE(memory().reserved, 32 * kMiB);
}

class SpillOfOneThatIsUsed : public Spill, public ::testing::WithParamInterface<size_t> {};

// Whatever the addresses say: where the driver has pages for one alone, it is the one of the most uses.
TEST_P(SpillOfOneThatIsUsed, ItComesBackFirst) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  EXPECT_EQ(get(60 * kMiB), 0u) << "uses are known from now on";
  const uint64_t more = get(30 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  for (int i = 0; i < 20; ++i) touch(*allocator, blocks[GetParam()]);
  put(more);
  let_time_pass(25'000);
  allocator->empty_cache(kDevice);
  ASSERT_EQ(memory().spilled, 30 * kMiB);
  control->fail_call(10 * kMiB / kPage + 1, "cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  unspill(*allocator, kDevice);
  control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
  EXPECT_EQ(memory().spilled, 20 * kMiB);
  put(blocks[GetParam()]);
  let_time_pass();
  EXPECT_EQ(memory().spilled, 20 * kMiB) << "it had come back";
}

INSTANTIATE_TEST_SUITE_P(WhereverItLies, SpillOfOneThatIsUsed, ::testing::Values(0, 1, 2));

TEST_F(Spill, PredictsWhatItCosts) {
  with({.host_bytes = 256 * kMiB, .available = nullptr, .most_slowdown = 1.01});
  const auto blocks = blocks_of(10 * kMiB, 3);
  EXPECT_EQ(get(60 * kMiB), 0u) << "uses are known from now on";
  for (int i = 0; i < 200; ++i) {
    let_time_pass(2);
    launch(StreamId{}, blocks[0], 512, 1);
    for (const uint64_t block : blocks) touch(*allocator, block);
  }
  let_time_pass();
  ::testing::internal::CaptureStderr();
  EXPECT_NE(get(20 * kMiB), 0u) << "who would die should rather be slow";
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("times as long, and --max-slowdown allows 1.0; it is used"), std::string::npos)
      << "each is read over the link at every turn: " << said;
}

// As where a model is loaded, or where others gave what was asked for before: the time between two shortages
// is not that of a step.
TEST_F(Spill, JudgesNoProgramThatOnlyGotMemory) {
  with({.host_bytes = 256 * kMiB, .available = nullptr, .most_slowdown = 1.01});
  const auto blocks = blocks_of(10 * kMiB, 3);
  EXPECT_EQ(get(60 * kMiB), 0u);
  let_time_pass(2);
  launch(StreamId{}, blocks[0], 512, 1);
  let_time_pass();
  EXPECT_EQ(get(60 * kMiB), 0u);
  EXPECT_NE(get(20 * kMiB), 0u) << ladder->story_of(failure->event.incident);
}

class SpillOfBlocks : public Spill, public ::testing::WithParamInterface<uint64_t> {};

// What the driver takes for each of many blocks passes while others are copied, and no byte goes twice.
// Neighbours are exchanged as one: by themselves blocks of a page would take longer in the driver's calls.
TEST_P(SpillOfBlocks, CopiesRunBesideTheDriversOtherWork) {
  allocator->limit(kDevice, 130 * kMiB);
  const auto make_blocks = [&] { return blocks_of(GetParam(), static_cast<int>(128 * kMiB / GetParam())); };
  auto blocks = make_blocks();
  let_time_pass();
  blocks.push_back(get(64 * kMiB));
  for (const uint64_t block : blocks) put(block);  // host memory is at hand from here on
  let_time_pass();
  blocks = make_blocks();
  let_time_pass();
  for (const char* call : {"cuMemCreate", "cuMemSetAccess", "cuMemUnmap"}) control->set_latency(call, 40'000);
  const SpillwaySimulatorCounts before = counts();
  ASSERT_NE(get(64 * kMiB), 0u) << failure->text;
  EXPECT_GT(memory().spilled, 60 * kMiB);
  EXPECT_EQ(counts().copied_bytes - before.copied_bytes, memory().spilled);
  const uint64_t copies_ns = memory().spilled / 25;
  EXPECT_LT(counts().virtual_ns - before.virtual_ns, copies_ns * 6 / 5);
}

TEST_F(Spill, ToAFileWaitsForNoCapture) {
  std::string why_not;
  ASSERT_TRUE(use_page_file(*allocator, ::testing::TempDir(), 64 * kMiB, &why_not)) << why_not;
  ladder = std::make_unique<Ladder>(*allocator);
  ladder->add(make_spill_to_nvme(*allocator, {}));
  allocator->set_handler(ladder.get());
  for (const uint64_t block : blocks_of(10 * kMiB, 3))
    ASSERT_EQ(allocator->add_block(block, 10 * kMiB), Status::kOk);
  const StreamId stream = new_stream();
  const uint64_t small = get(512, stream);
  auto* const handle = reinterpret_cast<CUstream>(stream);
  ASSERT_EQ(table.cuStreamBeginCapture(handle, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(get(20 * kMiB), 0u);
  CUgraph graph = nullptr;
  EXPECT_EQ(table.cuStreamEndCapture(handle, &graph), CUDA_SUCCESS) << "a wait would have broken it";
  table.cuGraphDestroy(graph);
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text;
  put(small);
}

// Tells what spilling would be measured by, and gives nothing.
struct LinkReader final : Strategy {
  explicit LinkReader(double* bytes_per_us) : bytes_per_us(bytes_per_us) {}
  StrategyInfo info() const noexcept override { return {"link_reader"}; }
  Offer offer(const PendingRequest& request) noexcept override {
    const SpillEstimate estimate = request.estimate_spill({.most_bytes = UINT64_MAX});
    if (estimate.useful_bytes != 0) *bytes_per_us = estimate.bytes_per_us;
    return {};
  }
  Relief relieve(PendingRequest&) noexcept override { return {}; }
  double* const bytes_per_us;
};

TEST_F(Spill, MeasuresTheLinkAndNotWhatElseTheDriverDoes) {
  double bytes_per_us = 0;
  ladder->add(std::make_unique<LinkReader>(&bytes_per_us));
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  control->set_latency("cuMemCreate", 10'000'000);
  ASSERT_NE(get(10 * kMiB), 0u) << failure->text;
  const double first_guess = bytes_per_us;
  let_time_pass();
  ASSERT_NE(get(8 * kMiB), 0u) << failure->text;
  EXPECT_NE(bytes_per_us, first_guess);
  EXPECT_NEAR(bytes_per_us, 25'000, 500) << "25 GB/s, however long new pages take";
}

// At each of the driver's calls, once: nothing is lost, nothing leaks, and the request is served or refused.
TEST_P(SpillOfBlocks, SurvivesAFailureOfAnyCall) {
  for (const char* call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemcpyAsync",
        "cuEventSynchronize", "cuMemUnmap", "cuMemAddressFree", "cuEventRecord"}) {
    bool fired = true;
    for (uint64_t n = 1; fired; n += kNextFailing) {
      ASSERT_LT(n, 200u) << call;
      const auto blocks = blocks_of(GetParam(), static_cast<int>(30 * kMiB / GetParam()));
      let_time_pass();
      const uint64_t before = counts().injected_failures;
      control->fail_call(n, call, 0, CUDA_ERROR_OUT_OF_MEMORY);
      release_host_memory(*allocator, DeviceId{1});  // so that some has to be made
      const uint64_t more = get(20 * kMiB);
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      fired = counts().injected_failures != before;
      ASSERT_TRUE(fired || n > 1) << call << " is never called";
      if (more != 0) put(more);
      for (const uint64_t block : blocks) put(block);
      table.cuCtxSynchronize();
      let_time_pass();
      allocator->empty_cache(kDevice);
      check();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachSize, SpillOfBlocks, ::testing::Values(kPage, 8 * kMiB));

}  // namespace
}  // namespace spillway::testing
