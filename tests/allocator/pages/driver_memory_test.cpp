// Pools whose memory is allocations of the driver's, cut into blocks: each block has a legacy handle, and the
// books are as those of pages.
#include "allocator/sharing/shared.h"

#include <random>

#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class DriverMemoryTest : public SimulatedDevice, public ::testing::WithParamInterface<DriverMemory> {
 protected:
  static constexpr uint64_t kPrivate = 5;

  void SetUp() override {
    SimulatedDevice::SetUp();
    use_driver_memory(*allocator, GetParam());
  }

  uint64_t get_here(uint64_t bytes, StreamId stream = {}) { return get(bytes, stream, pool_); }

  void release_pool() {
    if (pool_ == 0) return;
    EXPECT_EQ(allocator->set_pool(kDevice, pool_, kPoolReleased), Status::kOk);
  }

  void expect_shareable(uint64_t address, uint64_t base, uint64_t allocation) {
    CUdeviceptr found = 0;
    size_t size = 0;
    EXPECT_EQ(table.cuMemGetAddressRange(&found, &size, address), CUDA_SUCCESS);
    EXPECT_EQ(found, base);
    EXPECT_EQ(size, allocation);
    CUipcMemHandle handle;
    EXPECT_EQ(table.cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    SharedBlock shared;
    std::string text;
    EXPECT_EQ(allocator->share(address, &shared, &text), Status::kOk) << text;
    EXPECT_TRUE(shared.pages.empty());
    EXPECT_EQ(shared.offset, address - base);
  }

  const uint64_t pool_ = GetParam() == DriverMemory::kPrivatePools ? kPrivate : 0;
};

TEST_P(DriverMemoryTest, BlocksShareAnAllocation) {
  const uint64_t small = get_here(1000), next = get_here(512);
  const uint64_t large = get_here(3 * kMiB), beside = get_here(5 * kMiB);
  const uint64_t own = get_here(31 * kMiB);
  EXPECT_EQ(next, small + 1024);
  EXPECT_EQ(beside, large + 3 * kMiB);
  expect_shareable(next, small, kPage);
  expect_shareable(beside, large, 20 * kMiB);
  expect_shareable(own, own, 32 * kMiB);
  EXPECT_EQ(memory().reserved, 54 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, 54 * kMiB);
  put(small);
  put(large);
  EXPECT_EQ(get_here(3 * kMiB), large);
  EXPECT_EQ(get_here(700), small);
}

TEST_P(DriverMemoryTest, OtherPoolsAreAsTheSettingSays) {
  uint64_t address = 0;
  const uint64_t other = pool_ == 0 ? kPrivate : 0;
  EXPECT_EQ(allocator->allocate(kDevice, {kMiB, {}, other}, &address, nullptr), Status::kOk);
  CUipcMemHandle handle;
  EXPECT_EQ(table.cuIpcGetMemHandle(&handle, address), pool_ == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

TEST_P(DriverMemoryTest, IdleAllocationsGoBackWhole) {
  const uint64_t first = get_here(12 * kMiB), second = get_here(3 * kMiB), third = get_here(3 * kMiB);
  put(first);
  put(second);
  release_pool();
  EXPECT_EQ(memory().cached, 12 * kMiB) << "of the other one a block is in use";
  EXPECT_EQ(memory().stranded, 17 * kMiB);
  EXPECT_EQ(allocator->empty_cache(kDevice), 12 * kMiB);
  put(third);
  EXPECT_EQ(allocator->empty_cache(kDevice), 20 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, 0u);
}

TEST_P(DriverMemoryTest, NearTheLimitAnAllocationIsAsLargeAsTheRequest) {
  EXPECT_EQ(allocator->limit(kDevice, 30 * kMiB), Status::kOk);
  const uint64_t usual = get_here(11 * kMiB);
  EXPECT_NE(get_here(9 * kMiB), 0u);
  EXPECT_EQ(memory().reserved, 22 * kMiB) << "where 20 MiB are too much";
  EXPECT_NE(get_here(8 * kMiB), 0u);
  EXPECT_EQ(memory().reserved, 30 * kMiB);
  EXPECT_NE(get_here(1000), 0u) << "a small one beside a large one";
  EXPECT_EQ(get_here(9 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  put(usual);
  EXPECT_NE(get_here(9 * kMiB), 0u) << "in the free block";
}

TEST_P(DriverMemoryTest, ARequestThatIsShortHasIdleOnesBackFirst) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(get_here(20 * kMiB));
  for (const uint64_t block : blocks) put(block);
  const uint64_t large = get_here(200 * kMiB);
  EXPECT_EQ(large == 0, pool_ != 0) << "a private pool keeps what is its own";
  EXPECT_EQ(memory().reserved, pool_ == 0 ? 200 * kMiB : 240 * kMiB);
}

TEST_P(DriverMemoryTest, ACheckpointPutsBlocksBackWhereTheyWere) {
  const uint64_t first = get_here(3 * kMiB), second = get_here(2 * kMiB), third = get_here(kMiB);
  for (const uint64_t block : {first, second, third}) put(block);
  for (const auto& [address, bytes] : {std::pair{second, 2 * kMiB}, {third, kMiB}, {first, 3 * kMiB}}) {
    EXPECT_EQ(allocator->allocate_at(kDevice, {bytes, {}, pool_}, address), Status::kOk);
    check();
  }
}

TEST_P(DriverMemoryTest, TheBooksCloseWhateverIsAskedAndFreed) {
  std::minstd_rand chance(7);
  std::vector<uint64_t> live;
  for (int i = 0; i < 3000; ++i) {
    const bool frees = !live.empty() && chance() % 5 < 2;
    if (frees) {
      const size_t at = chance() % live.size();
      EXPECT_EQ(allocator->free(live[at]), Status::kOk);
      live[at] = live.back();
      live.pop_back();
    } else if (uint64_t address = 0;
               allocator->allocate(kDevice, {chance() % (1u << chance() % 24) + 1, {}, pool_}, &address,
                                   nullptr) == Status::kOk) {
      live.push_back(address);
    }
    if (i % 50 == 0) check();
    if (i % 500 == 0) allocator->empty_cache(kDevice);
  }
  for (const uint64_t address : live) put(address);
}

TEST_P(DriverMemoryTest, NothingChangesWhenTheDriverFails) {
  allocator->limit(kDevice, 0);  // the device's start is not looked at
  for (uint64_t n = 1;; ++n) {
    ASSERT_LT(n, 50u);
    const uint64_t fired = counts().injected_failures, reserved = memory().reserved;
    control->fail_call(n, nullptr, 0, CUDA_ERROR_UNKNOWN);
    const uint64_t block = get_here(21 * kMiB);
    const bool failed = counts().injected_failures != fired;
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    check();
    if (failed) {
      EXPECT_EQ(memory().reserved, reserved);
    }
    EXPECT_EQ(counts().live_pages_bytes, memory().reserved);
    if (block != 0) put(block);
    if (!failed) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Whose, DriverMemoryTest,
                         ::testing::Values(DriverMemory::kPrivatePools, DriverMemory::kEveryPool),
                         [](const auto& info) {
                           return info.param == DriverMemory::kEveryPool ? "EveryPool" : "PrivatePools";
                         });

}  // namespace
}  // namespace spillway::testing
