// Private pools: their pages stay theirs until they are released; lending, whole pages, address space.
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class PrivatePools : public SimulatedDevice {
 protected:
  uint64_t get_from(uint64_t pool, uint64_t bytes) {
    uint64_t address = 0;
    status = allocator->allocate(kDevice, {bytes, {}, pool}, &address, &failure);
    check();
    return address;
  }
  void set(uint64_t pool, uint32_t flags) {
    EXPECT_EQ(allocator->set_pool(kDevice, pool, flags), Status::kOk);
  }
};

TEST_F(PrivatePools, KeepTheirPagesUntilReleased) {
  const uint64_t first = get_from(7, 4 * kMiB);
  put(first);
  EXPECT_EQ(memory().pools, 4 * kMiB);
  EXPECT_NE(get(4 * kMiB), first);
  EXPECT_EQ(allocator->empty_cache(kDevice), 0u);
  EXPECT_EQ(get_from(7, 4 * kMiB), first) << "the pool reuses its own block";
  FreedBlock freed;
  ASSERT_EQ(allocator->free(first, &freed), Status::kOk);
  EXPECT_EQ(freed.pool, 7u);
  set(7, kPoolReleased);
  EXPECT_EQ(memory().pools, 0u);
  EXPECT_EQ(memory().cached, 4 * kMiB);
  EXPECT_EQ(allocator->empty_cache(kDevice, 8), 0u);
  EXPECT_EQ(allocator->empty_cache(kDevice, 7), 4 * kMiB);
}

// A graph's blocks are free for the allocator while it replays, on whichever stream.
TEST_F(PrivatePools, AReplayOnAnotherStreamEndsBeforeTheirPagesGo) {
  const StreamId replays = new_stream();
  const uint64_t captured = get_from(7, 64 * kMiB);
  put(captured);
  put(get(4 * kMiB));
  EXPECT_EQ(allocator->empty_cache(kDevice), 4 * kMiB);  // waits for the stream that captured
  launch(replays, captured, 64 * kMiB, 100000);
  set(7, kPoolReleased);
  EXPECT_EQ(allocator->empty_cache(kDevice), 64 * kMiB);
}

// Waiting for the whole device, as a released pool's pages need, would break the capture.
TEST_F(PrivatePools, ReleasedOnesKeepTheirPagesWhileAnyStreamCaptures) {
  const StreamId captures = new_stream();
  put(get(kMiB, captures));
  put(get_from(7, 64 * kMiB));
  set(7, kPoolReleased);
  auto* raw = reinterpret_cast<CUstream>(captures);
  ASSERT_EQ(table.cuStreamBeginCapture(raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(allocator->empty_cache(kDevice), 0u);
  CUgraph graph = nullptr;
  EXPECT_EQ(table.cuStreamEndCapture(raw, &graph), CUDA_SUCCESS) << "the capture was not broken";
  table.cuGraphDestroy(graph);
  EXPECT_EQ(allocator->empty_cache(kDevice), 64 * kMiB + kPage);
}

// The same where no event can be had to wait for.
TEST_F(PrivatePools, OthersPagesTooWhenThereIsNoEvent) {
  const StreamId captures = new_stream(), other = new_stream();
  put(get(kMiB, captures));
  put(get(4 * kMiB, other));
  const uint64_t used = get(4 * kMiB, other);
  EXPECT_EQ(allocator->record_stream(used, StreamId{}), Status::kOk);
  auto* raw = reinterpret_cast<CUstream>(captures);
  ASSERT_EQ(table.cuStreamBeginCapture(raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  control->fail_call(1, "cuEventRecord", 1, CUDA_ERROR_UNKNOWN);
  put(used);
  EXPECT_EQ(allocator->empty_cache(kDevice), 0u);
  control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(table.cuStreamEndCapture(raw, &graph), CUDA_SUCCESS) << "the capture was not broken";
  table.cuGraphDestroy(graph);
}

// Addresses are plenty, not endless: twice the device for each arena would be more than the simulated driver
// has.
TEST_F(PrivatePools, ThereCanBeManyAtOnce) {
  set_capacity(32 * 1024 * kMiB);
  restart();
  constexpr uint64_t kPools = 60;
  std::vector<uint64_t> blocks;
  for (uint64_t pool = 1; pool <= kPools; ++pool) {
    blocks.push_back(get_from(pool, kMiB));
    ASSERT_NE(blocks.back(), 0u) << pool << ": " << (failure ? failure->text : "");
    blocks.push_back(get_from(pool, kKiB));
    ASSERT_NE(blocks.back(), 0u) << pool << ": " << (failure ? failure->text : "");
  }
  // And one of them may come to hold nearly all of it.
  const uint64_t most = get_from(1, 28 * 1024 * kMiB);
  EXPECT_NE(most, 0u);
  put(most);
  for (const uint64_t block : blocks) put(block);
}

TEST_F(PrivatePools, AreNotTakenFromWhenMemoryIsShort) {
  Ladder ladder(*allocator);
  ladder.add(make_stitch());
  ladder.add(make_release_cache(*allocator));
  allocator->set_handler(&ladder);
  const uint64_t kept = get_from(7, 128 * kMiB);
  put(kept);
  EXPECT_EQ(get(192 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  set(7, kPoolReleased);
  EXPECT_NE(get(192 * kMiB), 0u) << "released pages serve others";
  EXPECT_EQ(get_from(9, 128 * kMiB), 0u);
  allocator->set_handler(nullptr);
}

TEST_F(PrivatePools, TakeIdlePagesOfTheDefaultPoolWhenMemoryIsShort) {
  Ladder ladder(*allocator);
  ladder.add(make_stitch());
  allocator->set_handler(&ladder);
  put(get(192 * kMiB));
  const uint64_t own = get_from(7, 16 * kMiB), hole = get_from(7, 16 * kMiB), last = get_from(7, 16 * kMiB);
  put(hole);
  EXPECT_NE(get_from(7, 160 * kMiB), 0u) << "its own hole is not among the idle pages";
  put(own);
  put(last);
  allocator->set_handler(nullptr);
}

TEST_F(PrivatePools, LendOnlyWhatIsFreeAndOnlyWhenAllElseIsShort) {
  const uint64_t lent = get_from(7, 200 * kMiB);
  put(lent);
  EXPECT_EQ(get(100 * kMiB), 0u);
  set(7, kPoolLends);
  const uint64_t other = get(20 * kMiB);
  EXPECT_TRUE(other < lent || other >= lent + 200 * kMiB) << "there was room elsewhere";
  EXPECT_EQ(get(100 * kMiB), lent);
  set(7, 0);
  EXPECT_EQ(get(90 * kMiB), 0u);
  put(lent);
  EXPECT_EQ(get_from(7, 200 * kMiB), lent) << "what was lent came back whole";
}

TEST_F(PrivatePools, OfWholePagesShareNone) {
  set(7, kPoolWholePages);
  const uint64_t first = get_from(7, 1000), second = get_from(7, 3 * kMiB), third = get_from(7, 10);
  for (const uint64_t block : {first, second, third}) EXPECT_EQ(block % kPage, 0u);
  EXPECT_EQ(memory().live, 1010 + 3 * kMiB);
  EXPECT_EQ(memory().reserved, 4 * kPage);
}

TEST_F(PrivatePools, ThatComeAndGoUseNoNewAddresses) {
  const uint64_t first = get_from(1, 8 * kMiB);
  put(first);
  for (uint64_t pool = 1; pool < 2000; ++pool) {
    set(pool, kPoolReleased);
    allocator->empty_cache(kDevice);
    const uint64_t block = get_from(pool + 1, 8 * kMiB);
    ASSERT_EQ(block, first);
    put(block);
  }
}

TEST_F(PrivatePools, NeedANumberOfTheirOwn) {
  EXPECT_EQ(allocator->set_pool(kDevice, 0, kPoolReleased), Status::kInvalid);
  EXPECT_EQ(allocator->set_pool(kDevice, kEveryPool, kPoolReleased), Status::kInvalid);
}

}  // namespace
}  // namespace spillway::testing
