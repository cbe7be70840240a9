// Mapping pages behind an address range, all of them or none.
#pragma once
#include <cstdint>
#include <span>

#include "driver/table.h"

namespace spillway::driver {

struct Page {
  CUmemGenericAllocationHandle handle = 0;
  uint64_t bytes = 0;  // a multiple of the granularity: a page is mapped and unmapped whole
};

// Maps `pages` one after the other from `address` on and gives `access` to the whole range. On any failure
// everything that this call mapped is unmapped again and the first error is returned; the pages stay the
// caller's either way. Thread-safe for disjoint ranges. The caller makes sure that nothing on the device uses
// the range.
CUresult map(const Table& table, CUdeviceptr address, std::span<const Page> pages,
             std::span<const CUmemAccessDesc> access);

// Unmaps [address, address + bytes), which must cover whole mappings.
CUresult unmap(const Table& table, CUdeviceptr address, uint64_t bytes);

}  // namespace spillway::driver
