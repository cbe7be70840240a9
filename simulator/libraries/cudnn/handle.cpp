#include "simulator/libraries/cudnn/handle.h"

#include "simulator/libraries/refusal.h"

namespace spillway::cudnn {
namespace {

thread_local std::string last_reason;

}  // namespace

cudnnStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUDNN_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return CUDNN_STATUS_NOT_INITIALIZED;
    default:
      return CUDNN_STATUS_EXECUTION_FAILED_CUDART;
  }
}

cudnnStatus_t fail(cudnnStatus_t status, std::string reason) {
  last_reason = std::move(reason);
  return status;
}

const std::string& last_error() {
  return last_reason;
}

cudnnStatus_t launch(cudnnHandle_t handle, const Computation& computation) {
  if (handle == nullptr) return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is a null pointer");
  return status_of(computation.launch(handle->stream));
}

cudnnStatus_t refuse(const char* name, const void* caller) {
  stand_in::say_refused(name, "CUDNN_STATUS_NOT_SUPPORTED", caller);
  return fail(CUDNN_STATUS_NOT_SUPPORTED, std::string(name) + " is not simulated");
}

}  // namespace spillway::cudnn
