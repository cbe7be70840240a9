// Handles, streams, modes and workspaces; the calls that compute are generated from calls.txt.
#include "simulator/libraries/cublas/handle.h"
#include "simulator/libraries/cublas/status.h"
#include "simulator/libraries/data_type.h"

namespace spillway::cublas {
namespace {

const Computation dot_ex("cublasDotEx");

// A vector with a stride is a matrix of one row.
cublasStatus_t copy_matrix(void* to, int to_stride, const void* from, int from_stride, int rows, int columns,
                           int element_bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool sensible = rows >= 0 && columns >= 0 && element_bytes > 0 && to_stride >= rows &&
                        from_stride >= rows && to != nullptr && from != nullptr;
  if (!sensible) return CUBLAS_STATUS_INVALID_VALUE;
  const auto bytes = [&](int elements) { return static_cast<std::size_t>(elements) * element_bytes; };
  const cudaError_t error =
      cudaMemcpy2DAsync(to, bytes(to_stride), from, bytes(from_stride), bytes(rows), columns, kind, stream);
  return stand_in::taken(error) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

}  // namespace
}  // namespace spillway::cublas

namespace blas = spillway::cublas;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return blas::library.create_handle(handle);
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  return blas::name_of(status);
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return blas::name_of(status);
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t) {
  constexpr uintptr_t kAlignment = 256;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool aligned = reinterpret_cast<uintptr_t>(workspace) % kAlignment == 0;
  return aligned ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->pointer_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDotEx(cublasHandle_t handle, int, const void*, cudaDataType, int, const void*,
                           cudaDataType, int, void* result, cudaDataType result_type, cudaDataType) {
  const std::size_t bytes = spillway::stand_in::element_bytes(result_type);
  if (bytes == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  return blas::reduce(handle, blas::dot_ex, result, bytes);
}

cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int elemSize, const void* A, int lda, void* B,
                                    int ldb, cudaStream_t stream) {
  return blas::copy_matrix(B, ldb, A, lda, rows, cols, elemSize, cudaMemcpyHostToDevice, stream);
}

cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int elemSize, const void* A, int lda, void* B,
                                    int ldb, cudaStream_t stream) {
  return blas::copy_matrix(B, ldb, A, lda, rows, cols, elemSize, cudaMemcpyDeviceToHost, stream);
}

cublasStatus_t cublasSetVectorAsync(int n, int elemSize, const void* x, int incx, void* y, int incy,
                                    cudaStream_t stream) {
  return blas::copy_matrix(y, incy, x, incx, 1, n, elemSize, cudaMemcpyHostToDevice, stream);
}

cublasStatus_t cublasGetVectorAsync(int n, int elemSize, const void* x, int incx, void* y, int incy,
                                    cudaStream_t stream) {
  return blas::copy_matrix(y, incy, x, incx, 1, n, elemSize, cudaMemcpyDeviceToHost, stream);
}
}
