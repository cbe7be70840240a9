#include "libtorch/kernels/known/operands.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "libtorch/kernels/known/known_values.h"
#include "libtorch/tensors.h"

namespace spillway::kernels {

// A result that is one of the inputs was counted as that.
void Operands::add(const at::Tensor& tensor, bool writes, libtorch::Extents extents) {
  const auto extent = extent_of(tensor);
  if (!extent) return;
  const auto known = std::ranges::find(ranges_, extent->address, &SpillwayRange::address);
  if (known != ranges_.end() && known->bytes >= extent->bytes) {
    known->writes |= writes ? 1u : 0u;
    return;
  }
  device_ = tensor.device().index();
  // A view whose rows lie apart spans more than it has, and one that repeats a row has more than it spans.
  bytes_ += std::min<uint64_t>(extent->bytes, tensor.nbytes());
  ranges_.push_back({extent->address, extent->bytes, writes ? 1u : 0u, extents.own, extents.other});
}

void Operands::collect(const KnownOperator& op, const char* name, c10::ArrayRef<const c10::IValue> inputs) {
  wanted_ = simulator().operators_take_time() != 0;
  if (!wanted_) return;
  operations_ = libtorch::operations_of(name, inputs);
  const libtorch::InputExtents extents(name, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool writes = std::ranges::find(op.written, i) != op.written.end();
    libtorch::for_each_tensor(inputs[i],
                              [&](const at::Tensor& tensor) { add(tensor, writes, extents.of(i)); });
  }
}

void Operands::charge(const std::vector<c10::IValue>& results) {
  if (!wanted_) return;
  for (const c10::IValue& result : results)
    libtorch::for_each_tensor(result, [&](const at::Tensor& tensor) { add(tensor, true); });
  if (ranges_.empty()) return;
  // A default stream's handle is the same on all devices, and means that of the current one.
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, device_));
  const CUstream stream = c10::cuda::getCurrentCUDAStream(device_).stream();
  simulator().operate(stream, ranges_.data(), ranges_.size(), bytes_, operations_);
}

}  // namespace spillway::kernels
