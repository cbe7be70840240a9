// Handles and streams; the other calls are generated from calls.txt.
#include <memory>

#include "simulator/libraries/cusolver/handle.h"

namespace solver = spillway::cusolver;

extern "C" {

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  if (handle == nullptr) return CUSOLVER_STATUS_INVALID_VALUE;
  *handle = nullptr;
  auto created = std::unique_ptr<cusolverDnContext>(new (std::nothrow) cusolverDnContext);
  if (created == nullptr) return CUSOLVER_STATUS_ALLOC_FAILED;
  const cusolverStatus_t status =
      solver::status_of(created->memory.charge("cusolver", spillway::stand_in::cublas_handle_bytes()));
  if (status == CUSOLVER_STATUS_SUCCESS) *handle = created.release();
  return status;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  return solver::destroy(handle);
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUSOLVER_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}
}
