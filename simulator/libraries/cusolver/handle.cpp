#include "simulator/libraries/cusolver/handle.h"

#include "simulator/libraries/refusal.h"

namespace spillway::cusolver {

cusolverStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUSOLVER_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUSOLVER_STATUS_ALLOC_FAILED;
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return CUSOLVER_STATUS_NOT_INITIALIZED;
    default:
      return CUSOLVER_STATUS_EXECUTION_FAILED;
  }
}

cusolverStatus_t launch(cusolverDnHandle_t handle, const Computation& computation) {
  return handle == nullptr ? CUSOLVER_STATUS_NOT_INITIALIZED : status_of(computation.launch(handle->stream));
}

cusolverStatus_t refuse(const char* name, const void* caller) {
  stand_in::say_refused(name, "CUSOLVER_STATUS_NOT_SUPPORTED", caller);
  return CUSOLVER_STATUS_NOT_SUPPORTED;
}

}  // namespace spillway::cusolver
