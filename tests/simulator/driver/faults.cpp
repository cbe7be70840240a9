// Injected failures and latencies: by the n-th call, by name, by probability, once and persistent. Each test
// proves that the fault fired. And what calls cost by their bytes, their mappings and what they pin.
#include <fstream>

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

constexpr uint64_t kGiB = 1024 * kMiB;

// A machine of this TOML text.
Settings machine(const std::string& text) {
  const std::string file = testing::TempDir() + "costs.toml";
  std::ofstream(file) << text;
  return {{"SPILLWAY_SIM_CONFIG", file}};
}

// What `call` adds to the driver's stall.
template <typename Do>
uint64_t stall_ns(const Table& table, Do call) {
  const uint64_t before = counts(table).driver_stall_ns;
  EXPECT_EQ(call(), CUDA_SUCCESS);
  return counts(table).driver_stall_ns - before;
}

CUmemAllocationProp host_page() {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  return prop;
}

// So many pages of 2 MiB, mapped one behind the other.
CUdeviceptr map_pages(const Table& table, size_t count) {
  CUdeviceptr range = 0;
  EXPECT_EQ(table.cuMemAddressReserve(&range, count * kPage, 0, 0, 0), CUDA_SUCCESS);
  const CUmemAllocationProp prop = device_page();
  for (size_t i = 0; i < count; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemMap(range + i * kPage, kPage, 0, handle, 0), CUDA_SUCCESS);
  }
  return range;
}

TEST(Costs, a_call_costs_for_its_bytes) {
  in_process(machine("[latency_ns]\ncuMemCreate = 1000\n[latency_per_gib_ns]\ncuMemCreate = 1024000"), [] {
    const Table& table = started_driver();
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = device_page();
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemCreate(&handle, kPage, &prop, 0); }), 3'000u);
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemCreate(&handle, kGiB, &prop, 0); }), 1'025'000u);
  });
}

TEST(Costs, a_call_costs_for_each_mapping_in_its_range) {
  in_process(machine("[latency_per_mapping_ns]\ncuMemSetAccess = 36000\ncuMemUnmap = 26000"), [] {
    const Table& table = started_driver();
    const CUdeviceptr range = map_pages(table, 10);
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemSetAccess(range, 10 * kPage, &access, 1); }), 360'000u);
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemUnmap(range, 10 * kPage); }), 260'000u);
  });
}

TEST(Costs, host_memory_is_pinned_at_a_bandwidth) {
  in_process(machine("[bandwidth]\npin = 3"), [] {
    const Table& table = started_driver();
    void* memory = nullptr;
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemHostAlloc(&memory, 3'000'000, 0); }), 1'000'000u);
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemAllocHost(&memory, 3'000'000); }), 1'000'000u);
    std::vector<char> own(3'000'000);
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemHostRegister(own.data(), own.size(), 0); }),
              1'000'000u);
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp host = host_page(), device = device_page();
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemCreate(&handle, 3 * kPage, &host, 0); }), 2 * kMiB);
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemCreate(&handle, 3 * kPage, &device, 0); }), 0u);
  });
}

TEST(Costs, mappings_wait_for_the_device_and_are_checked_as_strictly) {
  in_process(machine("[driver]\nmapping_waits = true"), [] {
    const Table& table = started_driver();
    const CUdeviceptr used = map_pages(table, 1), idle = map_pages(table, 1);
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (const CUdeviceptr range : {used, idle})
      EXPECT_EQ(table.cuMemSetAccess(range, kPage, &access, 1), CUDA_SUCCESS);
    const SpillwayRange range{used, kPage, 1};
    EXPECT_EQ(table.simulator->submit(nullptr, "long", &range, 1, 5'000'000, nullptr, nullptr), CUDA_SUCCESS);
    const uint64_t before = counts(table).virtual_ns;
    EXPECT_EQ(table.cuMemUnmap(idle, kPage), CUDA_SUCCESS);
    EXPECT_GT(counts(table).virtual_ns, before + 4'900'000);
    EXPECT_EQ(counts(table).violations, 0u);
    EXPECT_EQ(table.simulator->submit(nullptr, "long", &range, 1, 5'000'000, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemUnmap(used, kPage), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).violations, 1u) << "a kernel was still using it";
  });
}

TEST(Costs, of_the_typical_driver) {
  in_process({{"SPILLWAY_SIM_PROFILE", "typical"}}, [] {
    const Table& table = started_driver();
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = device_page(), host = host_page();
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemCreate(&handle, kPage, &prop, 0); }), 29'000u);
    EXPECT_EQ(stall_ns(table, [&] { return table.cuMemCreate(&handle, 10 * kPage, &prop, 0); }), 29'000u)
        << "as published: ten pages of 2 MiB cost ten times one handle of 20 MiB";
    const uint64_t chunk = stall_ns(table, [&] { return table.cuMemCreate(&handle, 32 * kMiB, &host, 0); });
    EXPECT_NEAR(static_cast<double>(chunk), 32.0 * (1 << 20) / 3 + 29'000, 1'000);
  });
}

}  // namespace
}  // namespace spillway::test
