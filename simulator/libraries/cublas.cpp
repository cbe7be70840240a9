// Handles, streams, modes and workspaces; the calls that compute are generated from cublas_calls.txt.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>

#include "simulator/libraries/handle.h"

namespace spillway::blas {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// The default workspace that cuBLAS's documentation gives for each generation.
std::size_t default_workspace_bytes(int major) {
  if (major == 9) return 32 * kMiB;
  return major >= 10 ? 12 * kMiB : 4 * kMiB;
}

cudaError_t allocate_workspace(cublasContext* handle) {
  int device = 0;
  int major = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
      error != cudaSuccess) {
    return error;
  }
  return cudaMalloc(&handle->default_workspace, default_workspace_bytes(major));
}

std::size_t scalar_bytes(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 0;
  }
}

const Computation dot_ex("cublasDotEx");

}  // namespace

cublasStatus_t launch(cublasHandle_t handle, const Computation& computation) {
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : computation.launch(handle->stream);
}

cublasStatus_t reduce(cublasHandle_t handle, const Computation& computation, void* result,
                      std::size_t bytes) {
  const cublasStatus_t status = launch(handle, computation);
  if (status != CUBLAS_STATUS_SUCCESS || handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) return status;
  if (result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(result, 0, bytes);
  return status_of(cudaStreamSynchronize(handle->stream));
}

cublasStatus_t refuse(const char* name) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said->insert(name).second) {
    std::fprintf(stderr, "spillway simulator: %s is not simulated: returning CUBLAS_STATUS_NOT_SUPPORTED\n",
                 name);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace spillway::blas

namespace blas = spillway::blas;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = nullptr;
  auto created = std::unique_ptr<cublasContext>(new (std::nothrow) cublasContext);
  if (created == nullptr) return CUBLAS_STATUS_ALLOC_FAILED;
  const cublasStatus_t status = blas::status_of(blas::allocate_workspace(created.get()));
  if (status == CUBLAS_STATUS_SUCCESS) *handle = created.release();
  return status;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const std::unique_ptr<cublasContext> owned(handle);
  return blas::status_of(cudaFree(handle->default_workspace));
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
  const std::size_t bytes = blas::scalar_bytes(result_type);
  if (bytes == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  return blas::reduce(handle, blas::dot_ex, result, bytes);
}
}
