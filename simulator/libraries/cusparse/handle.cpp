#include "simulator/libraries/cusparse/handle.h"

#include "simulator/libraries/refusal.h"

namespace spillway::cusparse {

cusparseStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUSPARSE_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUSPARSE_STATUS_ALLOC_FAILED;
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return CUSPARSE_STATUS_NOT_INITIALIZED;
    default:
      return CUSPARSE_STATUS_EXECUTION_FAILED;
  }
}

cusparseStatus_t launch(cusparseHandle_t handle, const Computation& computation) {
  return handle == nullptr ? CUSPARSE_STATUS_NOT_INITIALIZED : status_of(computation.launch(handle->stream));
}

cusparseStatus_t refuse(const char* name, const void* caller) {
  stand_in::say_refused(name, "CUSPARSE_STATUS_NOT_SUPPORTED", caller);
  return CUSPARSE_STATUS_NOT_SUPPORTED;
}

}  // namespace spillway::cusparse
