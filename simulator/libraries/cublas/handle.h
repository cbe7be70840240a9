// The cuBLAS handle and what every call does with it.
//
// Thread-safety: as cuBLAS: one handle, one thread at a time. Ownership: a handle owns its default workspace,
// never the one that the caller sets. Errors: cuBLAS's. Units: bytes.
#pragma once
#include <cublas_api.h>

#include <cstddef>
#include <type_traits>

#include "simulator/libraries/library.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  spillway::stand_in::HandleMemory memory;  // its default workspace
};

namespace spillway::cublas {

using stand_in::Computation;

constexpr cublasStatus_t kSuccess = CUBLAS_STATUS_SUCCESS;
constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;

inline constexpr stand_in::Library<cublasStatus_t> library{
    .code_row = "cublas.library",
    .handle_row = "cublas.handle",
    .success = kSuccess,
    .invalid = kInvalid,
    .not_initialized = CUBLAS_STATUS_NOT_INITIALIZED,
    .no_host_memory = CUBLAS_STATUS_ALLOC_FAILED,
    .no_memory = CUBLAS_STATUS_ALLOC_FAILED,
    .failed = CUBLAS_STATUS_EXECUTION_FAILED,
    .not_supported = CUBLAS_STATUS_NOT_SUPPORTED,
    .not_supported_name = "CUBLAS_STATUS_NOT_SUPPORTED"};

// A launch whose scalar result the caller may want on the host: there it is zero, as every read of device
// memory that no kernel has written.
cublasStatus_t reduce(cublasHandle_t handle, const Computation& computation, void* result, std::size_t bytes);

}  // namespace spillway::cublas
