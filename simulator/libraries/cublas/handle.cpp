#include "simulator/libraries/cublas/handle.h"

#include <cstring>

#include "simulator/libraries/refusal.h"

namespace spillway::cublas {

cublasStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

cublasStatus_t launch(cublasHandle_t handle, const Computation& computation) {
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : status_of(computation.launch(handle->stream));
}

cublasStatus_t reduce(cublasHandle_t handle, const Computation& computation, void* result,
                      std::size_t bytes) {
  const cublasStatus_t status = launch(handle, computation);
  if (status != CUBLAS_STATUS_SUCCESS || handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) return status;
  if (result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(result, 0, bytes);
  return status_of(stand_in::taken(cudaStreamSynchronize(handle->stream)));
}

cublasStatus_t refuse(const char* name, const void* caller) {
  stand_in::say_refused(name, "CUBLAS_STATUS_NOT_SUPPORTED", caller);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace spillway::cublas
