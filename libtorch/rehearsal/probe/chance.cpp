#include "libtorch/rehearsal/probe/chance.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include <cstring>
#include <type_traits>

#include "driver/simulator_control.h"
#include "libtorch/override.h"

namespace spillway::rehearsal {
namespace {

constexpr uint64_t kMost = 16;  // of the simulator's numbers: simulator/driver/process/reads.h

template <typename Float>
Float number_of(Float value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits > 0 && bits <= kMost ? static_cast<Float>(static_cast<float>(bits)) : value;
}

bool is_plain_float(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
      return true;
    default:
      return false;
  }
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Scalar value = at::native::_local_scalar_dense_cuda(self);
  if (!is_plain_float(self)) return value;
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "number_of", [&] {
    return at::Scalar(number_of(static_cast<scalar_t>(value.toDouble())));
  });
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  at::native::copy_(self, src, non_blocking);
  const bool read = self.is_cpu() && src.is_cuda() && self.nbytes() <= SPILLWAY_SIMULATOR_SMALL_READ;
  if (!read || !is_plain_float(self) || !self.is_non_overlapping_and_dense()) return self;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "number_of", [&] {
    auto* const elements = self.data_ptr<scalar_t>();
    for (int64_t i = 0; i < self.numel(); ++i) elements[i] = number_of(elements[i]);
  });
  return self;
}

}  // namespace

void give_floats_their_numbers() {
  const WithoutOverrideWarning quiet;
  // Never destroyed: its destructor would take the kernels out while other threads still read at exit.
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library->impl("_local_scalar_dense", &local_scalar_dense);
  library->impl("copy_", &copy);
}

}  // namespace spillway::rehearsal
