// cuSPARSELt: products with matrices of which two in four entries are zero. Its descriptors are values of the
// caller's, in which the stand-in keeps the shape. A compressed matrix is half its values and two bits an
// entry of these, as the format is documented; the buffer for compressing it and the workspace of a product
// are MODELLED as none.
#include <cusparseLt.h>

#include <cstring>

#include "simulator/libraries/computation.h"
#include "simulator/libraries/data_type.h"
#include "simulator/libraries/handle_memory.h"

namespace {

namespace stand_in = spillway::stand_in;

struct Shape {
  int64_t rows, columns;
  cudaDataType type;
};

const stand_in::Computation multiply("cusparseLtMatmul");
const stand_in::Computation compress("cusparseLtSpMMACompress2");

cusparseStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUSPARSE_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUSPARSE_STATUS_ALLOC_FAILED;
    default:
      return CUSPARSE_STATUS_EXECUTION_FAILED;
  }
}

template <class Value>
cusparseStatus_t clear(Value* value) {
  if (value == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  std::memset(value, 0, sizeof *value);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t describe(cusparseLtMatDescriptor_t* matrix, int64_t rows, int64_t columns,
                          cudaDataType type) {
  if (matrix == nullptr || rows < 1 || columns < 1 || stand_in::element_bytes(type) == 0) {
    return CUSPARSE_STATUS_INVALID_VALUE;
  }
  clear(matrix);
  const Shape shape{rows, columns, type};
  std::memcpy(matrix->data, &shape, sizeof shape);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t run(const stand_in::Computation& computation, cudaStream_t* streams, int32_t count) {
  return status_of(computation.launch(streams == nullptr || count < 1 ? nullptr : streams[0]));
}

}  // namespace

extern "C" {

cusparseStatus_t cusparseLtInit(cusparseLtHandle_t* handle) {
  if (handle == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  if (stand_in::capability_major() < 8) return CUSPARSE_STATUS_ARCH_MISMATCH;
  clear(handle);
  return status_of(stand_in::charge_code("cusparselt.library"));
}

cusparseStatus_t cusparseLtDenseDescriptorInit(const cusparseLtHandle_t*, cusparseLtMatDescriptor_t* matrix,
                                               int64_t rows, int64_t columns, int64_t, uint32_t,
                                               cudaDataType type, cusparseOrder_t) {
  return describe(matrix, rows, columns, type);
}

cusparseStatus_t cusparseLtStructuredDescriptorInit(const cusparseLtHandle_t*,
                                                    cusparseLtMatDescriptor_t* matrix, int64_t rows,
                                                    int64_t columns, int64_t, uint32_t, cudaDataType type,
                                                    cusparseOrder_t, cusparseLtSparsity_t) {
  return describe(matrix, rows, columns, type);
}

cusparseStatus_t cusparseLtMatDescriptorDestroy(const cusparseLtMatDescriptor_t* matrix) {
  return matrix == nullptr ? CUSPARSE_STATUS_INVALID_VALUE : CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtMatmulDescriptorInit(const cusparseLtHandle_t*,
                                                cusparseLtMatmulDescriptor_t* product, cusparseOperation_t,
                                                cusparseOperation_t, const cusparseLtMatDescriptor_t*,
                                                const cusparseLtMatDescriptor_t*,
                                                const cusparseLtMatDescriptor_t*,
                                                const cusparseLtMatDescriptor_t*, cusparseComputeType) {
  return clear(product);
}

cusparseStatus_t cusparseLtMatmulDescSetAttribute(const cusparseLtHandle_t*,
                                                  cusparseLtMatmulDescriptor_t* product,
                                                  cusparseLtMatmulDescAttribute_t, const void* data,
                                                  size_t bytes) {
  const bool whole = product != nullptr && data != nullptr && bytes > 0;
  return whole ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_INVALID_VALUE;
}

cusparseStatus_t cusparseLtMatmulAlgSelectionInit(const cusparseLtHandle_t*,
                                                  cusparseLtMatmulAlgSelection_t* selection,
                                                  const cusparseLtMatmulDescriptor_t*,
                                                  cusparseLtMatmulAlg_t) {
  return clear(selection);
}

cusparseStatus_t cusparseLtMatmulAlgSetAttribute(const cusparseLtHandle_t*,
                                                 cusparseLtMatmulAlgSelection_t* selection,
                                                 cusparseLtMatmulAlgAttribute_t, const void* data,
                                                 size_t bytes) {
  const bool whole = selection != nullptr && data != nullptr && bytes > 0;
  return whole ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_INVALID_VALUE;
}

// One algorithm, number 0, without split-k.
cusparseStatus_t cusparseLtMatmulAlgGetAttribute(const cusparseLtHandle_t*,
                                                 const cusparseLtMatmulAlgSelection_t* selection,
                                                 cusparseLtMatmulAlgAttribute_t attribute, void* data,
                                                 size_t bytes) {
  if (selection == nullptr || data == nullptr || bytes == 0) return CUSPARSE_STATUS_INVALID_VALUE;
  std::memset(data, 0, bytes);
  const int one = 1;
  const bool counts =
      attribute == CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID || attribute == CUSPARSELT_MATMUL_SPLIT_K;
  if (counts && bytes >= sizeof one) std::memcpy(data, &one, sizeof one);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtMatmulPlanInit(const cusparseLtHandle_t*, cusparseLtMatmulPlan_t* plan,
                                          const cusparseLtMatmulDescriptor_t*,
                                          const cusparseLtMatmulAlgSelection_t*) {
  return clear(plan);
}

cusparseStatus_t cusparseLtMatmulPlanDestroy(const cusparseLtMatmulPlan_t* plan) {
  return plan == nullptr ? CUSPARSE_STATUS_INVALID_VALUE : CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtMatmulGetWorkspace(const cusparseLtHandle_t*, const cusparseLtMatmulPlan_t* plan,
                                              size_t* bytes) {
  if (plan == nullptr || bytes == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  *bytes = 0;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtMatmul(const cusparseLtHandle_t*, const cusparseLtMatmulPlan_t* plan, const void*,
                                  const void*, const void*, const void*, const void*, void*, void*,
                                  cudaStream_t* streams, int32_t count) {
  return plan == nullptr ? CUSPARSE_STATUS_INVALID_VALUE : run(multiply, streams, count);
}

cusparseStatus_t cusparseLtMatmulSearch(const cusparseLtHandle_t*, cusparseLtMatmulPlan_t* plan, const void*,
                                        const void*, const void*, const void*, const void*, void*, void*,
                                        cudaStream_t* streams, int32_t count) {
  return plan == nullptr ? CUSPARSE_STATUS_INVALID_VALUE : run(multiply, streams, count);
}

cusparseStatus_t cusparseLtSpMMACompressedSize2(const cusparseLtHandle_t*,
                                                const cusparseLtMatDescriptor_t* matrix, size_t* compressed,
                                                size_t* buffer) {
  if (matrix == nullptr || compressed == nullptr || buffer == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  Shape shape;
  std::memcpy(&shape, matrix->data, sizeof shape);
  const size_t kept = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.columns) / 2;
  *compressed = kept * stand_in::element_bytes(shape.type) + kept / 4;
  *buffer = 0;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtSpMMACompress2(const cusparseLtHandle_t*, const cusparseLtMatDescriptor_t* matrix,
                                          int, cusparseOperation_t, const void*, void*, void*,
                                          cudaStream_t stream) {
  return matrix == nullptr ? CUSPARSE_STATUS_INVALID_VALUE : run(compress, &stream, 1);
}
}
