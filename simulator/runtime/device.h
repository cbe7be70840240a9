// Which device and context a thread works on.
//
// Thread-safety: the device is the calling thread's own. Ownership: a primary context, once retained, is kept
// until the process ends, as the runtime does. Errors: as cudaSetDevice's.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace spillway::runtime {

// The device of the current context, else the one that the thread selected.
cudaError_t current_device(int* device);

// The primary context of `device`, created on the first use in the process.
cudaError_t primary_context(int device, CUcontext* context);

// One attribute of a device; 0 where the driver does not know it.
int attribute(int device, CUdevice_attribute which);

}  // namespace spillway::runtime
