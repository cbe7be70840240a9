// Rounding 32-bit floats by chance, by operators: numbers to bfloat16 as chance.h does it.
//
// The random bits follow from seed and key alone, not from what was rounded before, nor from the device: a
// kernel makes them on a GPU, and a processor where there is none (docs/decisions.md).
//
// Thread-safety: one thread. Ownership: owns a kernel a device. Errors: of `round` and `draw`, c10::Error
// where the driver refuses a launch; no device memory is allocated.
#pragma once
#include <cstdint>

#include "trainer/libtorch.h"
#include "trainer/optimizer/rules/kernels_by_device.h"
#include "trainer/runtime/device_kernel.h"

namespace spillway::trainer {

class StochasticRounding {
 public:
  explicit StochasticRounding(uint64_t seed);

  void reserve(at::Device device);
  // Where the numbers stand.
  struct Key {
    uint64_t update = 0, parameter = 0, begin = 0;
  };
  // For `random_bits`, with positions that count from the parameter's first number.
  uint64_t chance(const Key& key) const;
  // `from` are floats, of which only the upper halves are left; `bits` 32-bit integers of the same number,
  // scratch. REQUIRES of both: reserve(to.device()).
  void round(const at::Tensor& from, const at::Tensor& bits, const at::Tensor& to, const Key& key);
  // Random floats from 0 to below 1.
  void draw(const at::Tensor& to, const Key& key);
  std::vector<std::string> remarks() const { return kernels_.remarks(); }

 private:
  void fill(const at::Tensor& to, const Key& key, bool fractions);

  const uint64_t seed_;
  const at::Tensor upper_half_ = at::full({}, -(1 << 16), at::kInt);  // of a float's bits
  KernelsByDevice<DeviceKernel> kernels_;
};

KernelCode random_fill_kernel();

}  // namespace spillway::trainer
