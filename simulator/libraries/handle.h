// The cuBLAS handle and what every call does with it.
//
// Thread-safety: as cuBLAS: one handle, one thread at a time. Ownership: a handle owns its default workspace,
// never the one that the caller sets. Errors: cuBLAS's. Units: bytes.
#pragma once
#include <cublas_api.h>

#include <cstddef>

#include "simulator/libraries/computation.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  void* default_workspace = nullptr;
};

namespace spillway::blas {

cublasStatus_t launch(cublasHandle_t handle, const Computation& computation);

// A launch whose scalar result the caller may want on the host: there it is zero, as every read of device
// memory that no kernel has written.
cublasStatus_t reduce(cublasHandle_t handle, const Computation& computation, void* result, std::size_t bytes);

// Says once that `name` is not simulated.
cublasStatus_t refuse(const char* name);

}  // namespace spillway::blas
