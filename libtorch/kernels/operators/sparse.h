// Sparse tensors as their parts, which are dense: what a Call needs to compute with them on the CPU.
//
// Thread-safety: free functions. Ownership: a tensor made here shares the parts that it is given. Errors:
// c10::Error for a layout that is neither COO nor compressed.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>

namespace spillway::kernels {

inline bool is_sparse(const at::Tensor& tensor) {
  return tensor.layout() != at::kStrided;
}

// Of COO: indices and values. Of compressed layouts: compressed indices, plain indices, values.
struct SparseParts {
  std::array<at::Tensor, 3> tensors;
  size_t count = 0;
};

SparseParts parts_of(const at::Tensor& sparse);

// A tensor like `like` on the device of the parts.
at::Tensor sparse_of(const SparseParts& parts, const at::Tensor& like);

// Makes `sparse` what `like` is, out of these parts.
void assign(const at::Tensor& sparse, const SparseParts& parts, const at::Tensor& like);

}  // namespace spillway::kernels
