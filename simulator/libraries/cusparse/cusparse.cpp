// Handles, matrices, and the calls that count entries; the others are generated from calls.txt.
#include <array>

#include "simulator/libraries/cusparse/handle.h"

namespace spillway::cusparse {
namespace {

const Computation estimate("cusparseSpGEMM_workEstimation");
const Computation multiply("cusparseSpGEMM_compute");
const Computation count_sum("cusparseXcsrgeam2Nnz");

cusparseStatus_t describe(cusparseSpMatDescr_t* matrix, int64_t rows, int64_t columns, int64_t entries) {
  if (rows < 0 || columns < 0 || entries < 0) return kInvalid;
  const cusparseStatus_t status = library.create(matrix);
  if (status == kSuccess) **matrix = {rows, columns, entries};
  return status;
}

// Each step of the product is called twice: for the size of its buffer, and with the buffer.
cusparseStatus_t step(cusparseHandle_t handle, const Computation& computation, int64_t needed, size_t* bytes,
                      const void* buffer) {
  if (bytes == nullptr) return kInvalid;
  if (buffer != nullptr) return library.launch(handle, computation);
  *bytes = static_cast<size_t>(needed);
  return kSuccess;
}

}  // namespace
}  // namespace spillway::cusparse

using namespace spillway::cusparse;

extern "C" {

cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
  return library.create_handle(handle);
}

cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
  return library.destroy(handle);
}

cusparseStatus_t cusparseGetVersion(cusparseHandle_t, int* version) {
  if (version == nullptr) return kInvalid;
  *version = CUSPARSE_VERSION;
  return kSuccess;
}

cusparseStatus_t cusparseGetProperty(libraryPropertyType type, int* value) {
  if (value == nullptr || type < MAJOR_VERSION || type > PATCH_LEVEL) return kInvalid;
  *value = std::array{CUSPARSE_VER_MAJOR, CUSPARSE_VER_MINOR, CUSPARSE_VER_PATCH}[type];
  return kSuccess;
}

cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUSPARSE_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t mode) {
  if (handle == nullptr) return CUSPARSE_STATUS_NOT_INITIALIZED;
  handle->pointer_mode = mode;
  return CUSPARSE_STATUS_SUCCESS;
}

const char* cusparseGetErrorString(cusparseStatus_t status) {
  switch (status) {
    case CUSPARSE_STATUS_SUCCESS:
      return "success";
    case CUSPARSE_STATUS_NOT_INITIALIZED:
      return "initialization error";
    case CUSPARSE_STATUS_ALLOC_FAILED:
      return "out of memory";
    case CUSPARSE_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUSPARSE_STATUS_EXECUTION_FAILED:
      return "kernel launch failure";
    case CUSPARSE_STATUS_NOT_SUPPORTED:
      return "operation not supported";
    default:
      return "unrecognized error";
  }
}

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* matrix, int64_t rows, int64_t columns,
                                   int64_t entries, void*, void*, void*, cusparseIndexType_t,
                                   cusparseIndexType_t, cusparseIndexBase_t, cudaDataType) {
  return describe(matrix, rows, columns, entries);
}

cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t* matrix, int64_t rows, int64_t columns,
                                   int64_t entries, void*, void*, void*, cusparseIndexType_t,
                                   cusparseIndexBase_t, cudaDataType) {
  return describe(matrix, rows, columns, entries);
}

cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t matrix) {
  return library.destroy(matrix);
}

cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t matrix, int64_t* rows, int64_t* columns,
                                      int64_t* entries) {
  if (matrix == nullptr || rows == nullptr || columns == nullptr || entries == nullptr) return kInvalid;
  *rows = matrix->rows;
  *columns = matrix->columns;
  *entries = matrix->entries;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpGEMM_workEstimation(cusparseHandle_t handle, cusparseOperation_t,
                                               cusparseOperation_t, const void*, cusparseConstSpMatDescr_t a,
                                               cusparseConstSpMatDescr_t b, const void*,
                                               cusparseSpMatDescr_t c, cudaDataType, cusparseSpGEMMAlg_t,
                                               cusparseSpGEMMDescr_t, size_t* bytes, void* buffer) {
  if (a == nullptr || b == nullptr || c == nullptr) return kInvalid;
  return step(handle, estimate, row_buffer(*a), bytes, buffer);
}

cusparseStatus_t cusparseSpGEMM_compute(cusparseHandle_t handle, cusparseOperation_t, cusparseOperation_t,
                                        const void*, cusparseConstSpMatDescr_t a, cusparseConstSpMatDescr_t b,
                                        const void*, cusparseSpMatDescr_t c, cudaDataType,
                                        cusparseSpGEMMAlg_t, cusparseSpGEMMDescr_t, size_t* bytes,
                                        void* buffer) {
  if (a == nullptr || b == nullptr || c == nullptr) return kInvalid;
  c->entries = entries_of_product(*a, *b);
  return step(handle, multiply, sort_buffer(c->entries), bytes, buffer);
}

cusparseStatus_t cusparseXcsrgeam2Nnz(cusparseHandle_t handle, int, int, const cusparseMatDescr_t,
                                      int entries_a, const int*, const int*, const cusparseMatDescr_t,
                                      int entries_b, const int*, const int*, const cusparseMatDescr_t, int*,
                                      int* total, void*) {
  const cusparseStatus_t status = library.launch(handle, count_sum);
  if (status != CUSPARSE_STATUS_SUCCESS || handle->pointer_mode == CUSPARSE_POINTER_MODE_DEVICE)
    return status;
  if (total == nullptr) return kInvalid;
  *total = entries_a + entries_b;
  return CUSPARSE_STATUS_SUCCESS;
}

// No pivot was zero.
cusparseStatus_t cusparseXbsrsm2_zeroPivot(cusparseHandle_t handle, bsrsm2Info_t, int* position) {
  if (handle == nullptr || position == nullptr) return kInvalid;
  *position = -1;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseXbsrsv2_zeroPivot(cusparseHandle_t handle, bsrsv2Info_t, int* position) {
  if (handle == nullptr || position == nullptr) return kInvalid;
  *position = -1;
  return CUSPARSE_STATUS_SUCCESS;
}
}
