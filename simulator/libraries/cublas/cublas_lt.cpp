// cuBLASLt: descriptors, the heuristic and the one operation that programs call.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "simulator/libraries/cublas/handle.h"
#include "simulator/libraries/cublas/status.h"

// PyTorch gives cuBLAS's handle in place of one of cuBLASLt's own, so nothing is read from either.
struct cublasLtContext {};

namespace {

const spillway::stand_in::Computation matmul("cublasLtMatmul");

constexpr auto library = [] {
  auto lt = spillway::cublas::library;
  lt.code_row = "cublaslt.library";
  return lt;
}();

cublasStatus_t check_attribute(const void* descriptor, const void* value, size_t bytes) {
  const bool complete = descriptor != nullptr && value != nullptr && bytes > 0;
  return complete ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// A descriptor, with what the program set of it.
template <class Opaque>
struct Described : Opaque {
  std::map<int, std::string> attributes;

  template <typename Value>
  void set(int attribute, const Value& value) {
    attributes[attribute].assign(reinterpret_cast<const char*>(&value), sizeof value);
  }
};
using Operation = Described<cublasLtMatmulDescOpaque_t>;
using Layout = Described<cublasLtMatrixLayoutOpaque_t>;

template <class Opaque>
cublasStatus_t set_attribute(Opaque* descriptor, int attribute, const void* value, size_t bytes) {
  const cublasStatus_t status = check_attribute(descriptor, value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS)
    static_cast<Described<Opaque>*>(descriptor)
        ->attributes[attribute]
        .assign(static_cast<const char*>(value), bytes);
  return status;
}

// Most of the library's defaults are zeros; the others are set where a descriptor is made.
template <class Opaque>
cublasStatus_t get_attribute(const Opaque* descriptor, int attribute, void* value, size_t bytes,
                             size_t* written) {
  if (const cublasStatus_t status = check_attribute(descriptor, value, bytes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  const auto& known = static_cast<const Described<Opaque>*>(descriptor)->attributes;
  std::memset(value, 0, bytes);
  if (const auto found = known.find(attribute); found != known.end())
    std::memcpy(value, found->second.data(), std::min(bytes, found->second.size()));
  if (written != nullptr) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
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

// What a descriptor says only chooses among kernels, and there is one that computes nothing: it is kept for
// programs that ask for it again.
extern "C" {

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return spillway::cublas::name_of(status);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return spillway::cublas::name_of(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const cublasStatus_t loaded = library.status_of(spillway::stand_in::charge_code(library.code_row));
  return loaded == library.success ? library.create(handle) : loaded;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return library.destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (descriptor == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* const made = new Operation;
  made->set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute);
  made->set(CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale);
  made->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  *descriptor = made;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return library.destroy(static_cast<Operation*>(descriptor));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  return set_attribute(descriptor, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t bytes, size_t* written) {
  return get_attribute(descriptor, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* const made = new Layout;
  made->set(CUBLASLT_MATRIX_LAYOUT_TYPE, type);
  made->set(CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL);
  made->set(CUBLASLT_MATRIX_LAYOUT_ROWS, rows);
  made->set(CUBLASLT_MATRIX_LAYOUT_COLS, columns);
  made->set(CUBLASLT_MATRIX_LAYOUT_LD, leading);
  made->set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{1});
  *layout = made;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return library.destroy(static_cast<Layout*>(layout));
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  return set_attribute(layout, attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* value,
                                                size_t bytes, size_t* written) {
  return get_attribute(layout, attribute, value, bytes, written);
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
