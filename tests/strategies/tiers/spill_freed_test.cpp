// Blocks that are freed while their memory lies on the host: it stays there until nothing uses it any more.
#include <thread>

#include "allocator/pages/idle_pages.h"
#include "tests/allocator/fuzz/interrupted_driver.h"
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

class SpillFreed : public Spill {
 protected:
  uint64_t on_host() { return spilled_bytes(*allocator, Tier::kHost); }
};

TEST_F(SpillFreed, OfAFreedBlockEndsWhenItsStreamIsPastIt) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  ASSERT_NE(get(20 * kMiB), 0u);
  for (const uint64_t block : blocks) launch(StreamId{}, block, 10 * kMiB, 50'000);
  for (const uint64_t block : blocks) put(block);
  EXPECT_GT(on_host(), 0u) << "the kernels may still read it";
  EXPECT_EQ(memory().spilled, 0u) << "the program does not use it any more";
  table.cuCtxSynchronize();
  let_time_pass();
  EXPECT_EQ(on_host(), 0u);
}

TEST_F(SpillFreed, OfAFreedBlockWaitsForTheDefaultStreamOfEachThread) {
  const StreamId own{reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD)};
  const auto blocks = blocks_of(10 * kMiB, 3, own);
  let_time_pass();
  ASSERT_NE(get(20 * kMiB), 0u);
  CUcontext context = nullptr;
  table.cuCtxGetCurrent(&context);
  std::thread([&] {
    table.cuCtxSetCurrent(context);
    for (const uint64_t block : blocks) launch(own, block, 10 * kMiB, 50'000);
  }).join();
  for (const uint64_t block : blocks) put(block);
  let_time_pass();
  EXPECT_GT(on_host(), 0u) << "the kernels of the other thread may still read it";
  table.cuCtxSynchronize();
  let_time_pass();
  EXPECT_EQ(on_host(), 0u);
}

// Tells what waiting for events would give, and gives nothing.
struct PendingReader final : Strategy {
  explicit PendingReader(uint64_t* bytes) : bytes(bytes) {}
  StrategyInfo info() const noexcept override { return {"pending_reader"}; }
  Offer offer(const PendingRequest& request) noexcept override {
    *bytes = request.pending_bytes();
    return {};
  }
  Relief relieve(PendingRequest&) noexcept override { return {}; }
  uint64_t* const bytes;
};

TEST_F(SpillFreed, OfAFreedBlockGivesTheDeviceNothingWhenItEnds) {
  uint64_t pending = 0;
  ladder->add(std::make_unique<PendingReader>(&pending));
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  ASSERT_NE(get(20 * kMiB), 0u);
  for (const uint64_t block : blocks) launch(StreamId{}, block, 10 * kMiB, 50'000);
  for (const uint64_t block : blocks) put(block);
  EXPECT_GT(on_host(), 0u);
  const uint64_t here = get(4 * kMiB);
  const StreamId stream = new_stream();
  launch(stream, here, 4 * kMiB, 50'000);
  EXPECT_EQ(allocator->record_stream(here, stream), Status::kOk);
  put(here);
  EXPECT_EQ(get(100 * kMiB), 0u);
  EXPECT_EQ(pending, 4 * kMiB);
  table.cuCtxSynchronize();
  let_time_pass();
}

class SpillInterrupted : public SpillFreed {
 protected:
  void SetUp() override {
    SpillFreed::SetUp();
    allocator = std::make_unique<Allocator>(driver.table());
    with({.host_bytes = 256 * kMiB, .available = nullptr, .most_slowdown = 0});
    allocator->limit(kDevice, 32 * kMiB);
  }
  InterruptedDriver driver;
};

TEST_F(SpillInterrupted, OfABlockThatIsFreedWhileItsPagesMoveEndsWithTheMove) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  driver.at_next_copy([&] {
    for (const uint64_t block : blocks) EXPECT_EQ(allocator->free(block), Status::kOk);
    let_time_pass();  // nothing uses them any more, and that is seen
  });
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  let_time_pass();
  EXPECT_EQ(on_host(), 0u);
  EXPECT_EQ(memory().pending, 0u);
  EXPECT_NE(get(10 * kMiB), 0u) << failure->text;
  EXPECT_EQ(text(control->violations), "");
}

}  // namespace
}  // namespace spillway::testing
