// The cuSOLVER handle, what every call does with it, and how much scratch memory the calls ask for.
//
// Thread-safety: as cuSOLVER: one handle, one thread at a time. Errors: cuSOLVER's.
//
// Scratch memory is MODELLED, after the needs of LAPACK's blocked algorithms; nothing here has been measured
// yet.
//   factorizations (potrf, getrf, geqrf, orgqr, ormqr, sytrf)   panels of 64 columns
//   eigenvalues: syevd, heevd                                   2 n^2 + 6 n + 1, as LAPACK documents; syevj
//   n^2 + panels singular values: gesvd                                      m n + panels; gesvdj and its
//   like m n + n^2 + panels batched                                                     one's need for each
//   of the batch
// Units: elements, but for the X functions: bytes.
#pragma once
#include <cusolverDn.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "simulator/libraries/data_type.h"
#include "simulator/libraries/library.h"

struct cusolverDnContext {
  cudaStream_t stream = nullptr;
  spillway::stand_in::HandleMemory memory;
};
// What these say changes no memory.
struct cusolverDnParams {};
struct gesvdjInfo {};
struct syevjInfo {};

namespace spillway::cusolver {

using stand_in::Computation;
using stand_in::element_bytes;

inline constexpr stand_in::Library<cusolverStatus_t> library{
    .code_row = "cusolver.library",
    .handle_row = "cusolver.handle",
    .success = CUSOLVER_STATUS_SUCCESS,
    .invalid = CUSOLVER_STATUS_INVALID_VALUE,
    .not_initialized = CUSOLVER_STATUS_NOT_INITIALIZED,
    .no_host_memory = CUSOLVER_STATUS_ALLOC_FAILED,
    .no_memory = CUSOLVER_STATUS_ALLOC_FAILED,
    .failed = CUSOLVER_STATUS_EXECUTION_FAILED,
    .not_supported = CUSOLVER_STATUS_NOT_SUPPORTED,
    .not_supported_name = "CUSOLVER_STATUS_NOT_SUPPORTED"};

constexpr int64_t panels(int64_t rows) {
  return 64 * std::max<int64_t>(rows, 1);
}
constexpr int64_t eigenvalues(int64_t n) {
  return 2 * n * n + 6 * n + 1;
}
constexpr int64_t jacobi_eigenvalues(int64_t n) {
  return n * n + panels(n);
}
constexpr int64_t singular_values(int64_t m, int64_t n) {
  return m * n + panels(m + n);
}
constexpr int64_t jacobi_singular_values(int64_t m, int64_t n) {
  return m * n + n * n + panels(m + n);
}

}  // namespace spillway::cusolver
