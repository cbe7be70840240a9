// Managed memory: the host reads and writes it in every mode, and it counts on a device where it was
// prefetched to.
#include <cstring>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

constexpr CUmemLocation kHost{.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};
constexpr CUmemLocation kDevice{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

CUdeviceptr managed(const Table& table, uint64_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(table.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_HOST), CUDA_SUCCESS);
  return address;
}

uint64_t in_use(const Table& table) {
  size_t free = 0, total = 0;
  EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  return total - free;
}

void is_the_hosts(const Table& table) {
  const CUdeviceptr address = managed(table, 5 * kMiB);
  auto* bytes = reinterpret_cast<unsigned char*>(address);
  EXPECT_EQ(bytes[5 * kMiB - 1], 0);
  std::memset(bytes, 7, 1000);
  EXPECT_EQ(table.cuMemsetD8(address + 1000, 9, 24), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  EXPECT_EQ(table.cuMemAlloc(&device, 1024), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemcpy(device, address, 1024), CUDA_SUCCESS);
  std::memset(bytes, 0, 1024);
  EXPECT_EQ(table.cuMemcpy(address, device, 1024), CUDA_SUCCESS);
  EXPECT_EQ(bytes[0], 7);
  EXPECT_EQ(bytes[1023], 9);
  EXPECT_EQ(table.cuMemPrefetchAsync(address, 5 * kMiB, kDevice, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemAdvise(address, 5 * kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemAdvise(address, 5 * kMiB, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice), CUDA_SUCCESS);
  EXPECT_EQ(bytes[999], 7) << "wherever its pages are";
  bytes[999] = 8;
  EXPECT_EQ(table.cuMemPrefetchAsync(address, 5 * kMiB, kHost, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(bytes[999], 8);
  EXPECT_EQ(table.cuMemFree(address), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemFree(address), CUDA_ERROR_INVALID_VALUE) << "it is freed";
  EXPECT_EQ(table.cuMemFree(device), CUDA_SUCCESS);
}

TEST(Managed, the_host_reads_and_writes_it_in_every_mode) {
  for (const char* values : {"zeros", "random", "compute"})
    in_process({{"SPILLWAY_SIM_VALUES", values}, {"SPILLWAY_SIM_CAPACITY", "256MiB"}},
               [] { is_the_hosts(started_driver()); });
}

TEST(Managed, counts_where_it_was_prefetched_to) {
  in_process({{"SPILLWAY_SIM_CAPACITY", "64MiB"}}, [] {
    const Table& table = started_driver();
    const CUdeviceptr address = managed(table, 256 * kMiB);
    EXPECT_EQ(in_use(table), 0u);
    EXPECT_EQ(table.cuMemPrefetchAsync(address, 10 * kPage, kDevice, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemPrefetchAsync(address, 10 * kPage, kDevice, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(in_use(table), 10 * kPage);
    EXPECT_EQ(table.cuMemPrefetchAsync(address + kPage, kPage, kHost, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(in_use(table), 9 * kPage);
    EXPECT_EQ(table.cuMemPrefetchAsync(address, 256 * kMiB, kDevice, 0, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(in_use(table), 64 * kMiB) << "more than the card has is no error";
    CUdeviceptr plain = 0;
    EXPECT_EQ(table.cuMemAlloc(&plain, 60 * kMiB), CUDA_SUCCESS) << "it makes room";
    EXPECT_EQ(in_use(table), 64 * kMiB);
    EXPECT_EQ(table.cuMemFree(address), CUDA_SUCCESS);
    EXPECT_EQ(in_use(table), 60 * kMiB);
    EXPECT_EQ(table.cuMemAlloc(&plain, 5 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST(Managed, says_what_it_is_and_refuses_what_is_not) {
  in_process({}, [] {
    const Table& table = started_driver();
    int yes = 0;
    EXPECT_EQ(table.cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(yes, 1);
    const CUdeviceptr address = managed(table, 4096);
    unsigned is_managed = 0, type = 0;
    EXPECT_EQ(table.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address),
              CUDA_SUCCESS);
    EXPECT_EQ(table.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_SUCCESS);
    EXPECT_EQ(is_managed, 1u);
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(table.cuMemFreeHost(reinterpret_cast<void*>(address)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemPrefetchAsync(address, 4097, kDevice, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(
        table.cuMemPrefetchAsync(address, 4096, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9}, 0, nullptr),
        CUDA_ERROR_INVALID_DEVICE);
    CUdeviceptr other = 0;
    EXPECT_EQ(table.cuMemAllocManaged(&other, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAllocManaged(&other, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAlloc(&other, 4096), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAdvise(other, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice),
              CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace spillway::test
