// Injected failures and latencies: by the n-th call, by name, by probability, once and persistent. Each test
// proves that the fault fired.
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

CUresult allocate(const Table& table, uint64_t bytes = 1) {
  CUdeviceptr address = 0;
  return table.cuMemAlloc(&address, bytes);
}

TEST(Faults, the_nth_call_fails_once) {
  in_process({}, [] {
    const Table& table = started_driver();
    table.simulator->fail_call(3, nullptr, 0, CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr range = 0;
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAddressReserve(&range, kPage, 0, 0, 0), CUDA_SUCCESS) << "counted as well";
    EXPECT_EQ(allocate(table), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).injected_failures, 1u);
    EXPECT_EQ(counts(table).driver_calls, 4u);
  });
}

TEST(Faults, a_persistent_fault_lasts_until_it_is_switched_off) {
  in_process({}, [] {
    const Table& table = started_driver();
    table.simulator->fail_call(2, nullptr, 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(allocate(table), CUDA_ERROR_OUT_OF_MEMORY);
    table.simulator->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).injected_failures, 3u);
  });
}

TEST(Faults, a_name_restricts_the_fault_to_one_function) {
  in_process({}, [] {
    const Table& table = started_driver();
    table.simulator->fail_call(1, "cuStreamSynchronize", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamSynchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(table.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    table.simulator->fail_call(1, "cuMemAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(allocate(table), CUDA_ERROR_OUT_OF_MEMORY)
        << "a name without suffix means the header's version";
    table.simulator->fail_call(1, "cuCtxSynchronize", 0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(table.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED) << "or that of CUDA 12's header";
    EXPECT_EQ(counts(table).injected_failures, 3u);
  });
}

TEST(Faults, a_refused_call_changes_nothing) {
  in_process({}, [] {
    const Table& table = started_driver();
    const CUmemAllocationProp prop = device_page();
    CUmemGenericAllocationHandle page = 77;
    table.simulator->fail_call(1, "cuMemCreate", 0, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.cuMemCreate(&page, kPage, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(page, 77u);
    EXPECT_EQ(text(table.simulator->leaks), "");
  });
}

TEST(Faults, seeded_faults_repeat) {
  in_process({}, [] {
    const Table& table = started_driver();
    const auto pattern = [&](uint64_t seed) {
      table.simulator->fail_seeded(seed, 0.25, CUDA_ERROR_OUT_OF_MEMORY);
      std::string fates;
      for (int i = 0; i < 400; ++i) fates += allocate(table) == CUDA_SUCCESS ? '.' : 'x';
      return fates;
    };
    const std::string first = pattern(7);
    EXPECT_EQ(pattern(7), first);
    EXPECT_NE(pattern(8), first);
    const auto failures = std::count(first.begin(), first.end(), 'x');
    EXPECT_GT(failures, 50);
    EXPECT_LT(failures, 150);
    EXPECT_GE(counts(table).injected_failures, 2 * static_cast<uint64_t>(failures));
  });
}

TEST(Faults, reset_switches_injection_off) {
  in_process({}, [] {
    const Table& table = started_driver();
    table.simulator->fail_call(1, nullptr, 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(allocate(table), CUDA_ERROR_OUT_OF_MEMORY);
    table.simulator->reset();
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).injected_failures, 0u);
  });
}

TEST(Faults, latencies_cost_virtual_time) {
  in_process({}, [] {
    const Table& table = started_driver();
    const uint64_t before = counts(table).virtual_ns;
    EXPECT_EQ(table.simulator->set_latency("cuMemAlloc", 29'000), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->set_latency("cuMemCreateSomething", 1), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(table.simulator->set_latency("cuArrayDestroy", 1), CUDA_ERROR_NOT_FOUND) << "not simulated";
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).driver_stall_ns, 29'000u);
    EXPECT_GE(counts(table).virtual_ns, before + 29'000);
  });
}

TEST(Faults, calls_are_counted_by_name_also_those_that_fail) {
  in_process({}, [] {
    const Table& table = started_driver();
    const auto count = table.simulator->calls;
    EXPECT_EQ(count("cuMemAlloc"), 0u);
    EXPECT_EQ(allocate(table), CUDA_SUCCESS);
    EXPECT_EQ(allocate(table, uint64_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(count("cuMemAlloc"), 2u);
    EXPECT_EQ(count("cuMemAlloc_v2"), 2u);
    EXPECT_EQ(count("cuMemCreate"), 0u);
    EXPECT_EQ(count("cuMemCreateSomething"), 0u);
    EXPECT_EQ(count(nullptr), 0u);
    table.simulator->reset();
    EXPECT_EQ(count("cuMemAlloc"), 0u);
  });
}

TEST(Faults, a_function_that_is_not_simulated_says_so) {
  in_process({}, [] {
    const Table& table = started_driver();
    testing::internal::CaptureStderr();
    EXPECT_EQ(table.cuArrayDestroy(nullptr), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(table.cuArrayDestroy(nullptr), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "spillway simulator: cuArrayDestroy is not simulated: returning CUDA_ERROR_NOT_SUPPORTED\n");
  });
}

}  // namespace
}  // namespace spillway::test
