// The limit, the device's own end, and what others take: the equation closes each time.
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class Limit : public SimulatedDevice {};

TEST_F(Limit, CountsPhysicalPages) {
  allocator->limit(kDevice, 10 * kMiB);
  const uint64_t block = get(9 * kMiB);
  ASSERT_NE(block, 0u);
  EXPECT_EQ(memory().reserved, 10 * kMiB);
  EXPECT_NE(get(kMiB), 0u) << "what is left of the last page";
  EXPECT_EQ(get(kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(failure->event.largest_extent_bytes, 0u);
  EXPECT_EQ(failure->memory.free, 0u);
  EXPECT_EQ(memory().gave_up, 1u);
}

TEST_F(Limit, SaysTheLargestRequestThatWouldSucceed) {
  allocator->limit(kDevice, 20 * kMiB);
  const uint64_t block = get(9 * kMiB + 512);
  ASSERT_NE(block, 0u);
  EXPECT_EQ(get(15 * kMiB), 0u);
  const uint64_t largest = failure->event.largest_extent_bytes;
  EXPECT_EQ(largest, 11 * kMiB - 512);
  EXPECT_EQ(failure->event.short_bytes, 4 * kMiB + 512);
  EXPECT_EQ(get(largest + 512), 0u);
  EXPECT_NE(get(largest), 0u);
}

TEST_F(Limit, MayBeLoweredBelowWhatIsLive) {
  const uint64_t live = get(20 * kMiB), idle = get(20 * kMiB);
  put(idle);
  EXPECT_EQ(allocator->limit(kDevice, 16 * kMiB), Status::kOk);
  EXPECT_EQ(memory().reserved, 20 * kMiB) << "idle pages are given back";
  EXPECT_EQ(memory().limit, 20 * kMiB) << "what is held while that is more";
  EXPECT_EQ(get(4 * kMiB), 0u);
  put(live);
  EXPECT_NE(get(4 * kMiB), 0u);
  allocator->limit(kDevice, 0);
  EXPECT_EQ(memory().limit, 256 * kMiB);
  EXPECT_NE(get(100 * kMiB), 0u);
}

TEST_F(Limit, OfTheDeviceItselfIsMetTheSameWay) {
  const uint64_t block = get(250 * kMiB);
  ASSERT_NE(block, 0u);
  EXPECT_EQ(get(10 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(failure->event.largest_extent_bytes, 6 * kMiB);
  EXPECT_NE(get(6 * kMiB), 0u);
}

TEST_F(Limit, WhatOthersTakeIsNamed) {
  get(10 * kMiB);
  CUdeviceptr other = 0;
  ASSERT_EQ(table.cuMemAlloc(&other, 100 * kMiB), CUDA_SUCCESS);
  const Memory now = memory();
  EXPECT_EQ(now.others, 100 * kMiB);
  EXPECT_EQ(now.free, 146 * kMiB);
  allocator->limit(kDevice, 50 * kMiB);
  EXPECT_EQ(memory().others, 0u) << "the limit is not touched by them";
  EXPECT_EQ(memory().free, 40 * kMiB);
  allocator->limit(kDevice, 200 * kMiB);
  EXPECT_EQ(memory().others, 44 * kMiB);
  ASSERT_EQ(table.cuMemFree(other), CUDA_SUCCESS);
}

TEST_F(Limit, WhatWasInUseAtTheStartIsTheContexts) {
  CUdeviceptr before = 0;
  ASSERT_EQ(table.cuMemAlloc(&before, 30 * kMiB), CUDA_SUCCESS);
  restart();
  allocator->limit(kDevice, 0);  // the start
  EXPECT_EQ(memory().context, 30 * kMiB);
  EXPECT_EQ(memory().others, 0u);
  ASSERT_EQ(table.cuMemFree(before), CUDA_SUCCESS);
}

TEST_F(Limit, ASmallRequestTakesALargeHoleRatherThanFail) {
  allocator->limit(kDevice, 4 * kMiB);
  const uint64_t large = get(3 * kMiB);
  const uint64_t small = get(100);
  ASSERT_NE(small, 0u);
  EXPECT_EQ(memory().live, 3 * kMiB + 100);
  put(small);
  put(large);
  EXPECT_EQ(memory().cached, 4 * kMiB);
}

}  // namespace
}  // namespace spillway::testing
