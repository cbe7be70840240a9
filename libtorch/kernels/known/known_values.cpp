#include "libtorch/kernels/known/known_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DispatchKeySet.h>

#include <vector>

#include "libtorch/kernels/simulator.h"

namespace spillway::kernels {
namespace {

constexpr uint64_t kMostWholeNumbers = uint64_t{32} << 20, kMostOthers = 512;
// Elements of a tensor with gaps, which are told one by one.
constexpr int64_t kMostScattered = 4096;

bool wraps_another(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                           c10::DispatchKey::FuncTorchGradWrapper,
                                           c10::DispatchKey::Functionalize});
  return tensor.key_set().has_any(kWrappers);
}

int64_t elements_spanned(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return last + 1;
}

bool is_overlapping(const at::Tensor& tensor) {
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) return true;
  return false;
}

// The value's bytes, laid out as the tensor's are.
void tell_dense(const at::Tensor& tensor, const Extent& extent, const at::Tensor& value) {
  const at::Tensor laid_out = at::empty_strided(tensor.sizes(), tensor.strides(), value.options());
  laid_out.copy_(value);
  simulator().tell(extent.address, laid_out.const_data_ptr(), extent.bytes);
}

void tell_scattered(const at::Tensor& tensor, const Extent& extent, const at::Tensor& value) {
  const at::Tensor in_order = value.contiguous();
  const auto* element = static_cast<const char*>(in_order.const_data_ptr());
  const uint64_t bytes = tensor.element_size();
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()), 0);
  for (int64_t i = 0; i < tensor.numel(); ++i, element += bytes) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.stride(static_cast<int64_t>(d));
    simulator().tell(extent.address + static_cast<uint64_t>(offset) * bytes, element, bytes);
    for (auto d = static_cast<int64_t>(index.size()) - 1; d >= 0; --d) {
      if (++index[static_cast<size_t>(d)] < tensor.size(d)) break;
      index[static_cast<size_t>(d)] = 0;
    }
  }
}

}  // namespace

std::optional<Extent> extent_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != at::kStrided || wraps_another(tensor) ||
      tensor.is_quantized() || !tensor.has_storage() || tensor.numel() == 0)
    return std::nullopt;
  const void* data = tensor.storage().data();
  if (data == nullptr) return std::nullopt;
  const uint64_t element = tensor.element_size();
  return Extent{
      reinterpret_cast<CUdeviceptr>(data) + static_cast<uint64_t>(tensor.storage_offset()) * element,
      static_cast<uint64_t>(elements_spanned(tensor)) * element};
}

bool may_decide(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return false;
  const bool whole = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return tensor.nbytes() <= (whole ? kMostWholeNumbers : kMostOthers) && !tensor.is_conj() &&
         !tensor.is_neg();
}

std::optional<at::Tensor> known_value(const at::Tensor& tensor) {
  if (!may_decide(tensor)) return std::nullopt;
  if (tensor.numel() == 0) return value_to_overwrite(tensor);
  const auto extent = extent_of(tensor);
  if (!extent || extent->bytes > kMostWholeNumbers) return std::nullopt;
  const auto options = tensor.options().device(at::kCPU).pinned_memory(false);
  const at::Tensor bytes = at::empty({static_cast<int64_t>(extent->bytes / tensor.element_size())}, options);
  if (simulator().await_and_ask(extent->address, bytes.mutable_data_ptr(), extent->bytes) == 0)
    return std::nullopt;
  return bytes.as_strided(tensor.sizes(), tensor.strides());
}

at::Tensor value_to_overwrite(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(false));
}

void tell_value(const at::Tensor& tensor, const at::Tensor& value) {
  const auto extent = extent_of(tensor);
  if (!extent) return;
  const bool fits = may_decide(tensor) && value.defined() && value.sizes() == tensor.sizes() &&
                    value.scalar_type() == tensor.scalar_type() && !is_overlapping(tensor);
  if (fits && tensor.is_non_overlapping_and_dense()) return tell_dense(tensor, *extent, value);
  if (fits && tensor.numel() <= kMostScattered) return tell_scattered(tensor, *extent, value);
  forget_value(tensor);
}

void forget_value(const at::Tensor& tensor) {
  if (const auto extent = extent_of(tensor)) simulator().tell(extent->address, nullptr, extent->bytes);
}

}  // namespace spillway::kernels
