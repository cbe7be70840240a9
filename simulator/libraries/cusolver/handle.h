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
#include <new>
#include <type_traits>

#include "simulator/libraries/computation.h"
#include "simulator/libraries/data_type.h"
#include "simulator/libraries/handle_memory.h"

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

constexpr cusolverStatus_t kSuccess = CUSOLVER_STATUS_SUCCESS;
constexpr cusolverStatus_t kInvalid = CUSOLVER_STATUS_INVALID_VALUE;

cusolverStatus_t status_of(cudaError_t error);
cusolverStatus_t launch(cusolverDnHandle_t handle, const Computation& computation);
cusolverStatus_t refuse(const char* name, const void* caller);

template <class Opaque>
cusolverStatus_t create(Opaque** made) {
  if (made == nullptr) return kInvalid;
  *made = new (std::nothrow) Opaque;
  return *made == nullptr ? CUSOLVER_STATUS_ALLOC_FAILED : kSuccess;
}

template <class Opaque>
cusolverStatus_t destroy(Opaque* made) {
  delete made;
  return kSuccess;
}

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
