// A library's device code, as the runtime sees it: a kernel that is registered when the library is loaded and
// launched on a stream. So the stand-ins for NVIDIA's libraries are CUDA programs like any other: contexts,
// streams, errors and what is said about kernels that compute nothing are the runtime's.
//
// Thread-safety: launching is as thread-safe as cudaLaunchKernel. Ownership: a Computation has static storage
// duration and keeps a literal name. Errors: as cuBLAS's own; a failed launch leaves no last error behind,
// because NVIDIA's libraries have a runtime of their own.
#pragma once
#include <cublas_api.h>

namespace spillway::blas {

class Computation {
 public:
  explicit Computation(const char* name);
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  cublasStatus_t launch(cudaStream_t stream) const;
};

// The cuBLAS status of a runtime error, which is taken off the thread.
cublasStatus_t status_of(cudaError_t error);

}  // namespace spillway::blas
