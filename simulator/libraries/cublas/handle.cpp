#include "simulator/libraries/cublas/handle.h"

#include <cstring>

namespace spillway::cublas {

cublasStatus_t reduce(cublasHandle_t handle, const Computation& computation, void* result,
                      std::size_t bytes) {
  const cublasStatus_t status = library.launch(handle, computation);
  if (status != CUBLAS_STATUS_SUCCESS || handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) return status;
  if (result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(result, 0, bytes);
  return library.status_of(stand_in::taken(cudaStreamSynchronize(handle->stream)));
}

}  // namespace spillway::cublas
