// The virtual memory calls: what they grant, what they refuse and with which code, and when a page stops
// being charged.
#include <gmock/gmock.h>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;
using testing::HasSubstr;

class Vmm {
 public:
  explicit Vmm(const Table& driver) : table(driver) {}

  CUdeviceptr reserve(uint64_t bytes) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(table.cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  CUmemGenericAllocationHandle create(uint64_t bytes) const {
    const CUmemAllocationProp prop = device_page();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(table.cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  CUresult map(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) const {
    return table.cuMemMap(address, bytes, 0, handle, 0);
  }
  CUresult allow(CUdeviceptr address, uint64_t bytes) const {
    const CUmemAccessDesc access = read_write();
    return table.cuMemSetAccess(address, bytes, &access, 1);
  }
  uint64_t used() const {
    size_t free = 0, total = 0;
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return total - free;
  }

  const Table& table;
};

void with_vmm(const std::function<void(const Vmm&)>& body, Settings settings = {}) {
  settings.emplace("SPILLWAY_SIM_CAPACITY", "64MiB");
  for (const char* values : {"zeros", "compute"}) {
    settings["SPILLWAY_SIM_VALUES"] = values;
    in_process(settings, [&] { body(Vmm(started_driver())); });
  }
}

TEST(Vmm, granularity_is_2_MiB_on_device_and_host) {
  with_vmm([](const Vmm& vmm) {
    CUmemAllocationProp prop = device_page();
    for (const auto type : {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
      prop.location.type = type;
      for (const auto option : {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
        size_t granularity = 0;
        EXPECT_EQ(vmm.table.cuMemGetAllocationGranularity(&granularity, &prop, option), CUDA_SUCCESS);
        EXPECT_EQ(granularity, kPage);
      }
    }
  });
}

TEST(Vmm, reservations_are_aligned_disjoint_and_follow_a_hint) {
  with_vmm([](const Vmm& vmm) {
    const Table& table = vmm.table;
    CUdeviceptr aligned = 0, wanted = 0, other = 0, none = 0;
    EXPECT_EQ(table.cuMemAddressReserve(&aligned, kPage, 64 * kPage, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(aligned % (64 * kPage), 0u);
    EXPECT_EQ(table.cuMemAddressReserve(&wanted, kPage, 0, aligned + 5 * kPage, 0), CUDA_SUCCESS);
    EXPECT_EQ(wanted, aligned + 5 * kPage);
    EXPECT_EQ(table.cuMemAddressReserve(&other, 2 * kPage, 0, wanted - kPage, 0), CUDA_SUCCESS);
    EXPECT_TRUE(other + 2 * kPage <= wanted || other >= wanted + kPage) << "the hint overlapped";
    EXPECT_EQ(table.cuMemAddressReserve(&none, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAddressReserve(&none, kPage + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAddressReserve(&none, kPage, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAddressReserve(&none, kPage, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAddressReserve(&none, uint64_t{1} << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.cuMemAddressFree(aligned, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << "another size";
    EXPECT_EQ(counts(table).violations, 0u);
    for (const auto& [address, bytes] : {std::pair{aligned, kPage}, {wanted, kPage}, {other, 2 * kPage}})
      EXPECT_EQ(table.cuMemAddressFree(address, bytes), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAddressFree(other, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(counts(table).violations, 1u) << "a second free is a violation";
  });
}

TEST(Vmm, addresses_are_used_again) {
  with_vmm([](const Vmm& vmm) {
    for (int i = 0; i < 10000; ++i) {
      const CUdeviceptr address = vmm.reserve(uint64_t{8} << 30);
      ASSERT_EQ(vmm.table.cuMemAddressFree(address, uint64_t{8} << 30), CUDA_SUCCESS);
    }
  });
}

TEST(Vmm, neighbours_that_come_back_are_one_range_in_any_order) {
  with_vmm([](const Vmm& vmm) {
    for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}}) {
      const CUdeviceptr first = vmm.reserve(3 * kPage);
      ASSERT_EQ(vmm.table.cuMemAddressFree(first, 3 * kPage), CUDA_SUCCESS);
      CUdeviceptr parts[3] = {}, whole = 0;
      for (size_t i = 0; i < 3; ++i)
        ASSERT_EQ(vmm.table.cuMemAddressReserve(&parts[i], kPage, 0, first + i * kPage, 0), CUDA_SUCCESS);
      EXPECT_EQ(parts[2], first + 2 * kPage);
      for (const int i : order) ASSERT_EQ(vmm.table.cuMemAddressFree(parts[i], kPage), CUDA_SUCCESS);
      ASSERT_EQ(vmm.table.cuMemAddressReserve(&whole, 3 * kPage, 0, first, 0), CUDA_SUCCESS);
      EXPECT_EQ(whole, first);
      ASSERT_EQ(vmm.table.cuMemAddressFree(whole, 3 * kPage), CUDA_SUCCESS);
    }
  });
}

TEST(Vmm, create_refuses_bad_sizes_places_and_kinds) {
  with_vmm([](const Vmm& vmm) {
    const Table& table = vmm.table;
    CUmemAllocationProp prop = device_page();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(table.cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemCreate(&handle, kPage - 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemCreate(&handle, kPage, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemCreate(&handle, kPage, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 7;
    EXPECT_EQ(table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    prop = device_page();
    prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    EXPECT_EQ(table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    prop = device_page();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT_EQ(table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(vmm.used(), 0u);
  });
}

TEST(Vmm, a_page_is_charged_until_it_is_released_and_unmapped) {
  with_vmm([](const Vmm& vmm) {
    const CUdeviceptr address = vmm.reserve(2 * kPage);
    const auto handle = vmm.create(kPage);
    EXPECT_EQ(vmm.used(), kPage);
    EXPECT_EQ(vmm.map(address, kPage, handle), CUDA_SUCCESS);
    EXPECT_EQ(vmm.map(address + kPage, kPage, handle), CUDA_SUCCESS) << "a page may be mapped twice";
    EXPECT_EQ(vmm.table.cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(vmm.used(), kPage);
    EXPECT_EQ(vmm.table.cuMemUnmap(address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(vmm.used(), kPage);
    EXPECT_EQ(vmm.table.cuMemUnmap(address + kPage, kPage), CUDA_SUCCESS);
    EXPECT_EQ(vmm.used(), 0u);
    EXPECT_EQ(vmm.table.cuMemAddressFree(address, 2 * kPage), CUDA_SUCCESS);
    EXPECT_EQ(text(vmm.table.simulator->leaks), "");
    EXPECT_EQ(counts(vmm.table).violations, 0u);
  });
}

TEST(Vmm, the_card_is_full_when_its_pages_are_handed_out) {
  with_vmm([](const Vmm& vmm) {
    const CUmemAllocationProp prop = device_page();
    std::vector<CUmemGenericAllocationHandle> pages;
    CUmemGenericAllocationHandle handle = 0;
    for (uint64_t i = 0; i < 32; ++i) pages.push_back(vmm.create(kPage));
    EXPECT_EQ(vmm.table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(vmm.table.cuMemRelease(pages.back()), CUDA_SUCCESS);
    EXPECT_EQ(vmm.table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(vmm.table.simulator->set_capacity(0, 65 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(vmm.table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(vmm.table.simulator->set_capacity(0, 66 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(vmm.table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
  });
}

TEST(Vmm, map_refuses_what_the_driver_refuses) {
  with_vmm([](const Vmm& vmm) {
    const Table& table = vmm.table;
    const CUdeviceptr address = vmm.reserve(4 * kPage);
    const auto handle = vmm.create(2 * kPage);
    EXPECT_EQ(vmm.map(address + 1, kPage, handle), CUDA_ERROR_INVALID_VALUE) << "unaligned address";
    EXPECT_EQ(vmm.map(address, kPage / 2, handle), CUDA_ERROR_INVALID_VALUE) << "unaligned size";
    EXPECT_EQ(vmm.map(address, 3 * kPage, handle), CUDA_ERROR_INVALID_VALUE) << "more than the page";
    EXPECT_EQ(vmm.map(address + 3 * kPage, 2 * kPage, handle), CUDA_ERROR_INVALID_VALUE) << "over the end";
    EXPECT_EQ(vmm.map(address - kPage, kPage, handle), CUDA_ERROR_INVALID_VALUE) << "not reserved";
    EXPECT_EQ(vmm.map(address, kPage, handle + 1), CUDA_ERROR_INVALID_VALUE) << "no such page";
    EXPECT_EQ(table.cuMemMap(address, kPage, kPage, handle, 0), CUDA_ERROR_INVALID_VALUE) << "offset";
    EXPECT_EQ(table.cuMemMap(address, kPage, 0, handle, 1), CUDA_ERROR_INVALID_VALUE) << "flags";
    EXPECT_EQ(vmm.map(address + kPage, 2 * kPage, handle), CUDA_SUCCESS);
    EXPECT_EQ(vmm.map(address, 2 * kPage, handle), CUDA_ERROR_INVALID_VALUE) << "overlap at the end";
    EXPECT_EQ(vmm.map(address + 2 * kPage, kPage, handle), CUDA_ERROR_INVALID_VALUE) << "overlap inside";
    EXPECT_EQ(table.cuMemAddressFree(address, 4 * kPage), CUDA_ERROR_INVALID_VALUE) << "still mapped";
    EXPECT_EQ(counts(table).violations, 0u);
  });
}

TEST(Vmm, unmap_and_access_take_whole_mappings_only) {
  with_vmm([](const Vmm& vmm) {
    const Table& table = vmm.table;
    const CUdeviceptr address = vmm.reserve(8 * kPage);
    const auto big = vmm.create(2 * kPage), small = vmm.create(kPage);
    ASSERT_EQ(vmm.map(address, 2 * kPage, big), CUDA_SUCCESS);
    ASSERT_EQ(vmm.map(address + 2 * kPage, kPage, small), CUDA_SUCCESS);
    for (const auto& [offset, bytes] : {std::pair{uint64_t{0}, kPage},
                                        {kPage, kPage},
                                        {kPage, 2 * kPage},
                                        {uint64_t{0}, 4 * kPage},
                                        {4 * kPage, kPage},
                                        {uint64_t{0}, uint64_t{0}}}) {
      EXPECT_EQ(table.cuMemUnmap(address + offset, bytes), CUDA_ERROR_INVALID_VALUE)
          << offset << " " << bytes;
      EXPECT_EQ(vmm.allow(address + offset, bytes), CUDA_ERROR_INVALID_VALUE) << offset << " " << bytes;
    }
    EXPECT_EQ(vmm.allow(address, 3 * kPage), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemUnmap(address, 3 * kPage), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemUnmap(address, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Vmm, access_is_per_device_and_new_mappings_have_none) {
  with_vmm(
      [](const Vmm& vmm) {
        const Table& table = vmm.table;
        const CUdeviceptr address = vmm.reserve(kPage);
        const auto handle = vmm.create(kPage);
        const auto flags = [&](int device) {
          const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
          unsigned long long value = 99;
          EXPECT_EQ(table.cuMemGetAccess(&value, &location, address), CUDA_SUCCESS);
          return value;
        };
        ASSERT_EQ(vmm.map(address, kPage, handle), CUDA_SUCCESS);
        EXPECT_EQ(flags(0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
        CUmemAccessDesc access[] = {read_write(0), read_write(1)};
        access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
        EXPECT_EQ(table.cuMemSetAccess(address, kPage, access, 2), CUDA_SUCCESS);
        EXPECT_EQ(flags(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        EXPECT_EQ(flags(1), CU_MEM_ACCESS_FLAGS_PROT_READ);
        access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        EXPECT_EQ(table.cuMemSetAccess(address, kPage, access, 1), CUDA_SUCCESS);
        EXPECT_EQ(flags(0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
        EXPECT_EQ(flags(1), CU_MEM_ACCESS_FLAGS_PROT_READ) << "a device that is not named keeps its access";
        access[0].location.id = 2;
        EXPECT_EQ(table.cuMemSetAccess(address, kPage, access, 1), CUDA_ERROR_INVALID_DEVICE);
      },
      {{"SPILLWAY_SIM_DEVICES", "2"}});
}

TEST(Vmm, handles_are_counted_and_a_release_too_many_is_reported) {
  with_vmm([](const Vmm& vmm) {
    const Table& table = vmm.table;
    const CUdeviceptr address = vmm.reserve(kPage);
    const auto handle = vmm.create(kPage);
    ASSERT_EQ(vmm.map(address, kPage, handle), CUDA_SUCCESS);
    CUmemGenericAllocationHandle again = 0;
    void* inside = reinterpret_cast<void*>(address + 17);
    EXPECT_EQ(table.cuMemRetainAllocationHandle(&again, inside), CUDA_SUCCESS);
    EXPECT_EQ(again, handle);
    EXPECT_EQ(table.cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(counts(table).violations, 1u);
    EXPECT_THAT(text(table.simulator->violations), HasSubstr("; released at "));
    EXPECT_EQ(table.cuMemRetainAllocationHandle(&again, inside), CUDA_SUCCESS)
        << "mapped: it can be had again";
    CUmemAllocationProp prop = {};
    EXPECT_EQ(table.cuMemGetAllocationPropertiesFromHandle(&prop, again), CUDA_SUCCESS);
    EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EXPECT_EQ(table.cuMemRelease(again), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemUnmap(address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemRetainAllocationHandle(&again, inside), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Vmm, host_pages_take_nothing_of_the_card) {
  with_vmm([](const Vmm& vmm) {
    CUmemAllocationProp prop = device_page();
    prop.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(vmm.table.cuMemCreate(&handle, 64 * kPage, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(vmm.used(), 0u);
    const CUdeviceptr address = vmm.reserve(64 * kPage);
    EXPECT_EQ(vmm.map(address, 64 * kPage, handle), CUDA_SUCCESS);
    EXPECT_EQ(vmm.allow(address, 64 * kPage), CUDA_SUCCESS);
    EXPECT_EQ(vmm.table.cuMemsetD8(address, 1, 64 * kPage), CUDA_SUCCESS);
    prop.location.id = 1;
    EXPECT_EQ(vmm.table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_VALUE) << "no such node";
  });
}

// Whether the CPU reads and writes `address`: tried in a child that may die of it.
bool cpu_can_write(CUdeviceptr address) {
  const pid_t child = fork();
  if (child == 0) {
    *reinterpret_cast<volatile unsigned char*>(address) = 7;
    _exit(*reinterpret_cast<volatile unsigned char*>(address) == 7 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Vmm, the_cpu_uses_a_page_of_the_host_where_it_has_access) {
  for (const auto type : {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST})
    with_vmm([&](const Vmm& vmm) {
      const CUmemLocation host{.type = type, .id = 0};
      CUmemAllocationProp prop = device_page();
      prop.location = host;
      CUmemGenericAllocationHandle handle = 0;
      ASSERT_EQ(vmm.table.cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
      const CUdeviceptr address = vmm.reserve(kPage);
      ASSERT_EQ(vmm.map(address, kPage, handle), CUDA_SUCCESS);
      ASSERT_EQ(vmm.allow(address, kPage), CUDA_SUCCESS);
      unsigned long long flags = 9;
      EXPECT_EQ(vmm.table.cuMemGetAccess(&flags, &host, address), CUDA_SUCCESS);
      EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
      EXPECT_FALSE(cpu_can_write(address)) << "it has no access yet";
      CUmemAccessDesc access{.location = host, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      EXPECT_EQ(vmm.table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
      EXPECT_EQ(vmm.table.cuMemGetAccess(&flags, &host, address), CUDA_SUCCESS);
      EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      EXPECT_TRUE(cpu_can_write(address));
      if (vmm.table.simulator->mode() == SPILLWAY_SIMULATOR_COMPUTE) {
        EXPECT_EQ(vmm.table.cuMemsetD8(address, 5, kPage), CUDA_SUCCESS);
        EXPECT_EQ(*reinterpret_cast<const unsigned char*>(address + kPage - 1), 5) << "the true bytes";
      }
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      EXPECT_EQ(vmm.table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
      EXPECT_FALSE(cpu_can_write(address));
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      EXPECT_EQ(vmm.table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
      EXPECT_EQ(vmm.table.cuMemUnmap(address, kPage), CUDA_SUCCESS);
      EXPECT_FALSE(cpu_can_write(address)) << "the access goes with the mapping";
    });
}

TEST(Vmm, the_cpu_has_no_access_to_pages_of_a_device) {
  with_vmm([](const Vmm& vmm) {
    const CUdeviceptr address = vmm.reserve(kPage);
    ASSERT_EQ(vmm.map(address, kPage, vmm.create(kPage)), CUDA_SUCCESS);
    for (const auto type : {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST,
                            CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}) {
      const CUmemAccessDesc access{.location = {.type = type, .id = 0},
                                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      EXPECT_EQ(vmm.table.cuMemSetAccess(address, kPage, &access, 1), CUDA_ERROR_INVALID_VALUE);
    }
  });
}

TEST(Vmm, a_terabyte_of_pages_needs_no_memory_in_null_mode) {
  in_process({{"SPILLWAY_SIM_CAPACITY", "1TiB"}}, [] {
    const Vmm vmm(started_driver());
    constexpr uint64_t kPages = 70'000;  // more than the system allows mappings
    const CUdeviceptr address = vmm.reserve(kPages * kPage);
    for (uint64_t i = 0; i < kPages; ++i)
      ASSERT_EQ(vmm.map(address + i * kPage, kPage, vmm.create(kPage)), CUDA_SUCCESS);
    EXPECT_EQ(vmm.allow(address, kPages * kPage), CUDA_SUCCESS);
    EXPECT_EQ(vmm.used(), kPages * kPage);
  });
}

}  // namespace
}  // namespace spillway::test
