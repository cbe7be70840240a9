// What processes hold of a card, as NVML sees it. NVML is loaded when it is first asked and never unloaded.
//
// Thread-safety: any thread. Errors: none; without NVML, or where it does not know, there are no entries.
// Units: bytes.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace spillway::libtorch {

struct ProcessMemory {
  unsigned process = 0;
  uint64_t bytes = 0;
};

std::vector<ProcessMemory> processes_on(c10::DeviceIndex device);

}  // namespace spillway::libtorch
