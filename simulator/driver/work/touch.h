// The referee's check of what work touches: that memory is there, alive and permitted; and the note of until
// when.
//
// Thread-safety: used under the simulator's lock. Ownership: none. Errors: a violation and an error. Units:
// bytes.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "simulator/driver/machine/state.h"

namespace spillway::simulator {

// True if `address` is device memory by its value alone; otherwise it is a host address.
bool is_device_address(CUdeviceptr address);

// CUDA_SUCCESS if `device`, or for copies (`by_owner`) the device that has the memory, may touch the range.
// Otherwise reports who asked for what and returns CUDA_ERROR_ILLEGAL_ADDRESS.
CUresult check(const Device& device, const Touched& range, bool by_owner, const char* name, Site site);

// Notes that the range is in use until `use.end`. It has passed `check`.
void stamp(const Touched& range, const Use& use);

// Reports memory that is taken away at `site` while work runs in it.
void check_idle(const Mapping& mapping, CUdeviceptr address, const char* what, Site site);

}  // namespace spillway::simulator
