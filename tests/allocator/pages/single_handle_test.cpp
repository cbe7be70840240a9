// Blocks that are one allocation of the driver's each: whole for who asks the driver, in the same books,
// within the same limit.
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class SingleHandle : public SimulatedDevice {
 protected:
  static constexpr uint64_t kPool = 5;

  void SetUp() override {
    SimulatedDevice::SetUp();
    EXPECT_EQ(allocator->set_pool(kDevice, kPool, kPoolSingleHandle), Status::kOk);
  }

  uint64_t get_single(uint64_t bytes, StreamId stream = {}) { return get(bytes, stream, kPool); }
};

TEST_F(SingleHandle, EachIsAnAllocationOfItsOwn) {
  const uint64_t first = get_single(1000), second = get_single(5 * kMiB), third = get_single(64 * kKiB);
  for (const auto& [address, bytes] :
       {std::pair{first, kPage}, std::pair{second, 3 * kPage}, std::pair{third, kPage}}) {
    ASSERT_NE(address, 0u);
    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT_EQ(table.cuMemGetAddressRange(&base, &size, address + 500), CUDA_SUCCESS);
    EXPECT_EQ(base, address);
    EXPECT_EQ(size, bytes);
    CUipcMemHandle handle;
    EXPECT_EQ(table.cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    BlockInfo block;
    EXPECT_EQ(allocator->find_block(address + 999, &block), Status::kOk);
    EXPECT_EQ(block.address, address);
    EXPECT_EQ(block.pool, kPool);
  }
  const Memory now = memory();
  EXPECT_EQ(now.reserved, 5 * kPage);
  EXPECT_EQ(now.live, 1000 + 5 * kMiB + 64 * kKiB);
  EXPECT_EQ(counts().live_pages_bytes, now.reserved);
  for (const uint64_t address : {first, second, third}) put(address);
  EXPECT_EQ(memory().pools, 5 * kPage);
}

TEST_F(SingleHandle, AnIdleOneServesWholeAndOnlyItsPoolAndStream) {
  const uint64_t block = get_single(8 * kMiB);
  put(block);
  EXPECT_NE(get_single(8 * kMiB, new_stream()), block);
  EXPECT_NE(get(8 * kMiB), block);
  EXPECT_EQ(get_single(3 * kMiB), block) << "smaller, and not split";
  EXPECT_NE(get_single(2 * kMiB), 0u);
  EXPECT_EQ(memory().reserved, 8 * kMiB * 3 + 2 * kMiB);
}

TEST_F(SingleHandle, IdleOnesGoBackWhenTheirPoolIsReleased) {
  const uint64_t kept = get_single(4 * kMiB);
  put(get_single(6 * kMiB));
  EXPECT_EQ(allocator->empty_cache(kDevice), 0u) << "a graph may use it";
  EXPECT_EQ(allocator->set_pool(kDevice, kPool, kPoolSingleHandle | kPoolReleased), Status::kOk);
  EXPECT_EQ(memory().cached, 6 * kMiB);
  EXPECT_EQ(allocator->empty_cache(kDevice, kPool), 6 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, 4 * kMiB);
  put(kept);
  EXPECT_EQ(allocator->empty_cache(kDevice), 4 * kMiB);
  EXPECT_EQ(memory().reserved, 0u);
}

// The reserve has grown, or others have drawn, since it was set aside.
TEST_F(SingleHandle, WhatIsSetAsideIsNotDrawnAgain) {
  struct Grower final : OomHandler {
    LadderOutcome handle(PendingRequest& request) noexcept override {
      budget.reserve_bytes = 60 * kMiB;
      served = request.retry();
      return served ? LadderOutcome::kGranted : LadderOutcome::kGiveUp;
    }
    spillway_budget budget{};
    bool served = false;
  } handler;
  handler.budget.limit_bytes = 64 * kMiB;
  allocator->set_budget(&handler.budget);
  allocator->set_handler(&handler);
  control->fail_call(1, "cuMemAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
  const uint64_t block = get_single(8 * kMiB);
  control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
  EXPECT_TRUE(handler.served);
  EXPECT_NE(block, 0u);
  EXPECT_EQ(handler.budget.taken_bytes[0], 8 * kMiB);
  restart();
}

TEST_F(SingleHandle, ThoseOfAReleasedPoolServeARequestThatIsShort) {
  put(get_single(200 * kMiB));
  EXPECT_EQ(get(100 * kMiB), 0u);
  EXPECT_EQ(allocator->set_pool(kDevice, kPool, kPoolSingleHandle | kPoolReleased), Status::kOk);
  const uint64_t large = get(200 * kMiB);
  EXPECT_NE(large, 0u);
  put(large);
}

TEST_F(SingleHandle, RespectTheLimitAndCloseTheBooks) {
  EXPECT_EQ(allocator->limit(kDevice, 20 * kMiB), Status::kOk);
  const uint64_t pages = get(10 * kMiB), single = get_single(10 * kMiB);
  EXPECT_NE(single, 0u);
  EXPECT_EQ(get_single(kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->event.largest_extent_bytes, 0u);
  EXPECT_EQ(get(kMiB), 0u);
  put(single);
  EXPECT_EQ(get(kMiB), 0u) << "idle, but its pool's";
  put(pages);
  EXPECT_EQ(allocator->empty_cache(kDevice), 10 * kMiB);
  EXPECT_NE(get_single(4 * kMiB), 0u);
}

TEST_F(SingleHandle, PagesMakeRoomForThem) {
  Ladder ladder(*allocator);
  ladder.add(make_stitch());
  ladder.add(make_release_cache(*allocator));
  allocator->set_handler(&ladder);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(get(20 * kMiB));
  for (int i = 0; i < 12; i += 2) put(blocks[i]);
  const uint64_t single = get_single(100 * kMiB);
  EXPECT_NE(single, 0u);
  for (int i = 1; i < 12; i += 2) put(blocks[i]);
  put(single);
  EXPECT_EQ(get(200 * kMiB), 0u) << "the pool keeps what is its own";
  allocator->set_handler(nullptr);
}

TEST_F(SingleHandle, WaitForStreamsThatUseThem) {
  const StreamId side = new_stream();
  const uint64_t block = get_single(4 * kMiB);
  launch(side, block, 4 * kMiB);
  EXPECT_EQ(allocator->record_stream(block, side), Status::kOk);
  put(block);
  EXPECT_EQ(memory().pending, 4 * kMiB);
  EXPECT_NE(get_single(4 * kMiB), block);
  launch({}, get_single(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(allocator->set_pool(kDevice, kPool, kPoolSingleHandle | kPoolReleased), Status::kOk);
  allocator->empty_cache(kDevice);  // the referee reports what is freed under a kernel
}

TEST_F(SingleHandle, ArePinnedForSharingByTheDriversOwnHandles) {
  const uint64_t block = get_single(4 * kMiB);
  SharedBlock out;
  std::string text;
  EXPECT_EQ(allocator->share(block, &out, &text), Status::kOk);
  EXPECT_TRUE(out.pages.empty());
  EXPECT_EQ(out.offset, 0u);
  put(block);
}

TEST_F(SingleHandle, ChangeNothingWhenTheDriverFails) {
  for (uint64_t n = 1;; ++n) {
    ASSERT_LT(n, 50u);
    const uint64_t fired = counts().injected_failures;
    control->fail_call(n, nullptr, 0, CUDA_ERROR_OUT_OF_MEMORY);
    const uint64_t block = get_single(6 * kMiB);
    const bool failed = counts().injected_failures != fired;
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    check();
    EXPECT_EQ(memory().reserved, block == 0 ? 0 : 6 * kMiB);
    EXPECT_EQ(counts().live_pages_bytes, memory().reserved);
    EXPECT_EQ(block == 0, failed);
    if (!failed) break;
  }
}

TEST_F(SingleHandle, APoolIsOneOrTheOther) {
  uint64_t address = 0;
  EXPECT_EQ(allocator->allocate(kDevice, {kMiB, {}, 9}, &address, nullptr), Status::kOk);
  EXPECT_EQ(allocator->set_pool(kDevice, 9, kPoolSingleHandle), Status::kInvalid) << "it has pages already";
  EXPECT_NE(get_single(kMiB), 0u);
  EXPECT_EQ(allocator->set_pool(kDevice, kPool, 0), Status::kInvalid);
}

}  // namespace
}  // namespace spillway::testing
