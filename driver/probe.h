// What a device and its driver can do, found by trial and not by version.
#pragma once
#include <cstdint>
#include <string>

#include "driver/table.h"

namespace spillway::driver {

struct Features {
  bool virtual_memory = false;     // reserve, create, map, access, unmap, release: all went through
  bool host_pages = false;         // a page of host memory could be created and mapped for the device
  bool cpu_access = false;         // and for the CPU, at the same address
  bool file_descriptors = false;   // a page could be exported as a descriptor and imported again
  bool fabric = false;             // the same as a fabric handle
  bool rdma = false;               // the device says that its pages may be registered for GPUDirect RDMA
  uint64_t granularity_bytes = 0;  // of a page; 0 without virtual_memory
  CUmemLocation host_location{};   // where that page was made
  std::string why_not;  // one line per feature that is missing or not tried: the call and its error
};

// Tries each feature on `device` with its primary context retained and current for the length of the call,
// and gives back everything. Thread-safe. Needs at most a few granules of free memory; where the device has
// not even these, what the driver's attributes say of virtual memory and descriptors is believed. Any other
// failure is a missing feature. Host memory is tried only where that is asked for: drivers have crashed in
// such a call.
enum class HostPagesTrial : bool { kNo, kYes };
Features probe(const Table& table, int device, HostPagesTrial host_pages = HostPagesTrial::kNo);

}  // namespace spillway::driver
