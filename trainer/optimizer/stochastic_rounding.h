// Rounding 32-bit floats to bfloat16 such that the mean is right: up with the probability of the part that is
// cut off.
//
// Sixteen random bits are added below those that stay, and the sum is cut. Source: Gupta et al., "Deep
// Learning with Limited Numerical Precision" (2015). The bits follow from seed and key alone, not from what
// was rounded before.
//
// Thread-safety: one thread. Ownership: owns a generator a device. Errors: none; nothing is allocated but the
// generators, by `reserve`.
#pragma once
#include <cstdint>
#include <map>

#include "trainer/libtorch.h"

namespace spillway::trainer {

class StochasticRounding {
 public:
  explicit StochasticRounding(uint64_t seed) : seed_(seed) {}

  void reserve(at::Device device);
  // Where the numbers stand.
  struct Key {
    uint64_t update = 0, parameter = 0, begin = 0;
  };
  // `from` are floats, of which only the upper halves are left; `bits` 32-bit integers of the same number,
  // scratch. REQUIRES of both: reserve(to.device()).
  void round(const at::Tensor& from, const at::Tensor& bits, const at::Tensor& to, const Key& key);
  // Random floats from 0 to below 1.
  void draw(const at::Tensor& to, const Key& key);

 private:
  at::Generator& generator_for(at::Device device, const Key& key);

  const uint64_t seed_;
  const at::Tensor upper_half_ = at::full({}, -(1 << 16), at::kInt);  // of a float's bits
  std::map<int, at::Generator> generators_;                           // by device index
};

}  // namespace spillway::trainer
