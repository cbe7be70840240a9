// The cuBLAS handle and what every call does with it.
//
// Thread-safety: as cuBLAS: one handle, one thread at a time. Ownership: a handle owns its default workspace,
// never the one that the caller sets. Errors: cuBLAS's. Units: bytes.
#pragma once
#include <cublas_api.h>

#include <cstddef>
#include <type_traits>

#include "simulator/libraries/computation.h"
#include "simulator/libraries/handle_memory.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  spillway::stand_in::HandleMemory default_workspace;
};

namespace spillway::cublas {

using stand_in::Computation;

constexpr cublasStatus_t kSuccess = CUBLAS_STATUS_SUCCESS;
constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;

cublasStatus_t status_of(cudaError_t error);

cublasStatus_t launch(cublasHandle_t handle, const Computation& computation);

// A launch whose scalar result the caller may want on the host: there it is zero, as every read of device
// memory that no kernel has written.
cublasStatus_t reduce(cublasHandle_t handle, const Computation& computation, void* result, std::size_t bytes);

cublasStatus_t refuse(const char* name, const void* caller);

}  // namespace spillway::cublas
