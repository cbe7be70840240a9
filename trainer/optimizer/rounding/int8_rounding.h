// A tile of updated numbers back into a matrix in 8 bits, such that the mean is right.
//
// Each row's scale is its largest number's 127th part, rounded up to bfloat16. A number falls between two
// codes; the upper one is taken with the probability of the distance to the lower. A row whose largest
// code is 127 keeps its bits if no update changed it; of another one the scale becomes finer.
//
// Thread-safety: one thread. Ownership: owns scratch a device. Errors: LibTorch's exceptions, from `reserve`
// alone: the rest allocates no device memory.
#pragma once
#include <map>

#include "trainer/model/weights.h"
#include "trainer/optimizer/host_number.h"

namespace spillway::trainer {

class Int8Rounding {
 public:
  // For tiles of at most `rows`.
  void reserve(at::Device device, int64_t rows);

  // The numbers of whole rows, into `floats` [rows · columns].
  void read(const Int8Weight& rows, const at::Tensor& floats);
  // From `floats`. `chances`: as many random floats, from 0 to below 1. `work`: as many floats; it and
  // `floats` are scratch afterwards.
  void round(const at::Tensor& floats, const at::Tensor& work, const at::Tensor& chances,
             const Int8Weight& rows);

 private:
  at::Tensor scales_of(const Int8Weight& rows) const;  // scratch, [rows]

  HostNumber most_code_;
  const at::Tensor carry_ = at::full({}, (1 << 16) - 1, at::kInt);  // into the upper half of a float's bits
  const at::Tensor upper_half_ = at::full({}, -(1 << 16), at::kInt);
  std::map<int, at::Tensor> scratch_;  // by device index
};

}  // namespace spillway::trainer
