// What driver calls cost in virtual time where a configuration says so: by call, by byte, by mapping, by the
// memory that becomes pinned; and mappings that wait for the device.
#include <fstream>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

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
