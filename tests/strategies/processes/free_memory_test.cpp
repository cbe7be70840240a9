// How often a driver that is slow to tell how much memory is free is asked for it.
#include "strategies/processes/free_memory.h"

#include <gtest/gtest.h>

#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

constexpr int kTimes = 200;

struct Asked {
  uint64_t calls = 0;
  size_t free_bytes = 0;
};

// After so many questions, where a call takes `latency_ns`.
Asked ask(uint64_t latency_ns) {
  const driver::Table& table = simulated_table();
  const auto stalled = [&] {
    SpillwaySimulatorCounts counts{};
    table.simulator->counts(&counts);
    return counts.driver_stall_ns;
  };
  EXPECT_EQ(table.simulator->set_latency("cuMemGetInfo", latency_ns), CUDA_SUCCESS);
  const uint64_t before = stalled();
  FreeMemory memory;
  Asked asked;
  for (int i = 0; i < kTimes; ++i)
    if (const auto told = memory.of(table, 0)) asked.free_bytes = told->free_bytes;
  asked.calls = (stalled() - before) / latency_ns;
  EXPECT_EQ(table.simulator->set_latency("cuMemGetInfo", 0), CUDA_SUCCESS);
  return asked;
}

TEST(FreeMemory, a_slow_driver_is_asked_once_for_many_questions) {
  const driver::Table& table = simulated_table();
  CUcontext context = nullptr;
  ASSERT_EQ(table.cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(table.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(table.cuCtxPushCurrent(context), CUDA_SUCCESS);
  constexpr uint64_t kSlowNs = 3'600'000'000'000;  // no test takes a hundred hours
  const Asked slow = ask(kSlowNs);
  EXPECT_EQ(slow.calls, 1u);
  EXPECT_GT(slow.free_bytes, 0u);
  EXPECT_EQ(table.cuCtxPopCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(table.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spillway::testing
