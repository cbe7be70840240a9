// Rows of all ranks, each of its own length, on the host of the first one.
//
// Thread-safety: one thread. Ownership: borrows all. Errors: LibTorch's and c10d's exceptions.
#pragma once
#include "trainer/ranks/ranks.h"

namespace spillway::trainer {

// A rank's part of a buffer begins at a multiple of so many bytes.
inline constexpr int64_t kPartBytesAlignedTo = 16;
constexpr int64_t aligned_part(int64_t bytes) {
  return (bytes + kPartBytesAlignedTo - 1) / kPartBytesAlignedTo * kPartBytesAlignedTo;
}

// One row of all ranks' rows in their order, in bytes, on rank 0; the others have none. `bytes`: of each
// rank's, the same on all, of which `mine` is this one's. It passes through `buffer`, bytes on the ranks'
// device, in rounds. REQUIRES: 16 bytes of the buffer for each rank.
at::Tensor gather_rows(Ranks& ranks, const at::Tensor& buffer, const at::Tensor& mine,
                       const std::vector<int64_t>& bytes);

}  // namespace spillway::trainer
