// A library's device code, as the runtime sees it: a kernel that is registered when the library is loaded and
// launched on a stream. So the stand-ins for NVIDIA's libraries are CUDA programs like any other: contexts,
// streams, errors and what is said about kernels that compute nothing are the runtime's.
//
// Thread-safety: launching is as thread-safe as cudaLaunchKernel. Ownership: a Computation has static storage
// duration and keeps a literal name. Errors: the runtime's; none is left behind as the thread's last error,
// because NVIDIA's libraries have a runtime of their own.
#pragma once
#include <cuda_runtime_api.h>

namespace spillway::stand_in {

class Computation {
 public:
  explicit Computation(const char* name);
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  cudaError_t launch(cudaStream_t stream) const;
};

// `error`, taken off the thread.
cudaError_t taken(cudaError_t error);

// Of the current device; 0 when there is none.
int device_attribute(cudaDeviceAttr attribute);
int capability_major();

}  // namespace spillway::stand_in
