// The functions of the CUDA driver that the probe calls, found in libcuda.so.1 when it runs, and the one
// device that it asks.
//
// Thread-safety: the table is filled once, before any part runs. Errors: a driver or a device that is not
// there ends the process with a line that says so.
#pragma once
#include <cuda.h>

#include <string>

namespace spillway::probe {

struct Functions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes no parentheses
#define SPILLWAY_PROBE_FUNCTION(name) decltype(&::name) name = nullptr;
#include "tools/gpu_probe/probe_functions.inc"
#undef SPILLWAY_PROBE_FUNCTION
  void* library = nullptr;
  std::string missing;  // names that this driver does not have
};

// Loaded at the first call.
const Functions& cuda();

// "CUDA_SUCCESS", or a number where the driver has no name for it.
std::string name_of(CUresult result);

// Which device `device()` opens; before its first call.
void choose_device(int ordinal);
// The driver is initialised and the device's primary context is current on the calling thread.
CUdevice device();
// The context of device(), for other threads.
CUcontext context();
int attribute(CUdevice_attribute which);  // -1: refused

}  // namespace spillway::probe
