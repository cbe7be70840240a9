// cuBLASLt: descriptors, the heuristic and the one operation that PyTorch calls.
#include <cublasLt.h>

#include <cstring>

#include "simulator/libraries/cublas/handle.h"

namespace {

const spillway::stand_in::Computation matmul("cublasLtMatmul");

// PyTorch gives cuBLAS's handle, so there is none of its own to make.
constexpr auto library = [] {
  auto lt = spillway::cublas::library;
  lt.code_row = "cublaslt.library";
  return lt;
}();

cublasStatus_t check_attribute(const void* descriptor, const void* value, size_t bytes) {
  const bool complete = descriptor != nullptr && value != nullptr && bytes > 0;
  return complete ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Without a workspace: the memory that PyTorch sets aside for one does not depend on the answer.
cublasLtMatmulHeuristicResult_t usable(const cublasLtMatmulAlgo_t& algo) {
  cublasLtMatmulHeuristicResult_t result{};
  result.algo = algo;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1.0f;
  return result;
}

}  // namespace

// What a descriptor says only chooses among kernels, and there is one that computes nothing: none of it is
// kept.
extern "C" {

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t,
                                        cudaDataType_t) {
  return library.create(descriptor);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return library.destroy(descriptor);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t,
                                              const void* value, size_t bytes) {
  return check_attribute(descriptor, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType, uint64_t, uint64_t,
                                          int64_t) {
  return library.create(layout);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return library.destroy(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t, const void* value,
                                                size_t bytes) {
  return check_attribute(layout, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return library.create(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return library.destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t, const void* value,
                                                    size_t bytes) {
  return check_attribute(preference, value, bytes);
}

// One algorithm, which is any id with any configuration.
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t, cudaDataType_t, int,
                                      cublasLtMatmulAlgo_t* algo) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(algo, 0, sizeof *algo);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t, const void* value,
                                                    size_t bytes) {
  return check_attribute(algo, value, bytes);
}

// The library's defaults are zeros.
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void* value,
                                                    size_t bytes, size_t* written) {
  if (const cublasStatus_t status = check_attribute(algo, value, bytes); status != CUBLAS_STATUS_SUCCESS)
    return status;
  std::memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool complete = operation != nullptr && a != nullptr && b != nullptr && c != nullptr &&
                        d != nullptr && algo != nullptr && result != nullptr;
  if (!complete) return CUBLAS_STATUS_INVALID_VALUE;
  *result = usable(*algo);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool complete = operation != nullptr && a != nullptr && b != nullptr && c != nullptr &&
                        d != nullptr && preference != nullptr && results != nullptr && returned != nullptr;
  if (!complete || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = usable({});
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void*, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool complete = operation != nullptr && alpha != nullptr && a != nullptr && a_layout != nullptr &&
                        b != nullptr && b_layout != nullptr && d != nullptr && d_layout != nullptr;
  if (!complete || (workspace == nullptr && workspace_bytes > 0)) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t loaded = library.status_of(spillway::stand_in::charge_code(library.code_row));
  if (loaded != library.success) return loaded;
  return matmul.launch(stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
