// The cuSPARSE handle, its descriptors, what every call does with them, and how much scratch memory the calls
// ask for.
//
// Thread-safety: as cuSPARSE: one handle, one thread at a time. Errors: cuSPARSE's.
//
// Scratch memory is MODELLED, and so is the number of entries of a result that the library would count on the
// device:
//   products, triangular solvers          4 bytes a row and one more
//   sorting                               12 bytes an entry
//   entries of A B                        as if the entries of A and B were spread evenly: nnz(A) nnz(B) /
//   columns(A),
//                                         at most rows * columns; of A + B: nnz(A) + nnz(B)
//   product of sparse matrices, step two  12 bytes an entry of the result
// Units: bytes.
#pragma once
#include <cusparse.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "simulator/libraries/library.h"

struct cusparseContext {
  cudaStream_t stream = nullptr;
  cusparsePointerMode_t pointer_mode = CUSPARSE_POINTER_MODE_HOST;
  spillway::stand_in::HandleMemory memory;
};

struct cusparseSpMatDescr {
  int64_t rows = 0, columns = 0, entries = 0;
};
// What these say changes no memory.
struct cusparseDnMatDescr {};
struct cusparseDnVecDescr {};
struct cusparseMatDescr {};
struct cusparseSpGEMMDescr {};
struct cusparseSpSMDescr {};
struct cusparseSpSVDescr {};
struct bsrsm2Info {};
struct bsrsv2Info {};

namespace spillway::cusparse {

using stand_in::Computation;

constexpr cusparseStatus_t kSuccess = CUSPARSE_STATUS_SUCCESS;
constexpr cusparseStatus_t kInvalid = CUSPARSE_STATUS_INVALID_VALUE;

inline constexpr stand_in::Library<cusparseStatus_t> library{
    .code_row = "cusparse.library",
    .handle_row = "cusparse.handle",
    .success = kSuccess,
    .invalid = kInvalid,
    .not_initialized = CUSPARSE_STATUS_NOT_INITIALIZED,
    .no_host_memory = CUSPARSE_STATUS_ALLOC_FAILED,
    .no_memory = CUSPARSE_STATUS_ALLOC_FAILED,
    .failed = CUSPARSE_STATUS_EXECUTION_FAILED,
    .not_supported = CUSPARSE_STATUS_NOT_SUPPORTED,
    .not_supported_name = "CUSPARSE_STATUS_NOT_SUPPORTED"};

constexpr int64_t row_buffer(int64_t rows) {
  return 4 * (rows + 1);
}
constexpr int64_t row_buffer(const cusparseSpMatDescr& matrix) {
  return row_buffer(matrix.rows);
}
constexpr int64_t sort_buffer(int64_t entries) {
  return 12 * entries;
}
constexpr int64_t entries_of_product(const cusparseSpMatDescr& a, const cusparseSpMatDescr& b) {
  const double expected = static_cast<double>(a.entries) * static_cast<double>(b.entries) /
                          static_cast<double>(std::max<int64_t>(a.columns, 1));
  return static_cast<int64_t>(
      std::min(expected, static_cast<double>(a.rows) * static_cast<double>(b.columns)));
}

}  // namespace spillway::cusparse
