#include "libtorch/allocator/uses.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cmath>

#include "base/product_reads.h"
#include "libtorch/allocator/core.h"
#include "libtorch/products.h"

namespace spillway::libtorch {
namespace {

// Smaller ones share their pages with others and are never moved.
constexpr int64_t kLeastBytes = 2 << 20;

// Asked of the driver once a device.
ProductCard card_of(int device) {
  constexpr size_t kDevices = 64;
  static std::array<std::atomic<int>, kDevices> multiprocessors, cache_bytes;
  const size_t i = static_cast<size_t>(device);
  if (i >= kDevices) return {};
  if (multiprocessors[i] == 0) {
    int count = 0, bytes = 0;
    if (cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device) == cudaSuccess) cache_bytes[i] = bytes;
    const auto answered = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    multiprocessors[i] = answered == cudaSuccess && count > 0 ? count : 1;
  }
  return {static_cast<double>(multiprocessors[i]), static_cast<double>(cache_bytes[i])};
}

uint32_t reads_of(const at::Tensor& tensor, Extents extents) {
  if (extents.other == 0) return 1;
  const ProductOperand operand{tensor.nbytes(), static_cast<double>(extents.own),
                               static_cast<double>(extents.other)};
  return static_cast<uint32_t>(std::lround(product_reads(operand, card_of(tensor.device().index()))));
}

void touch(const at::Tensor& tensor, Extents extents) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  // Asked of the storage: a tensor that only stands for one may answer in Python, or have no size yet.
  if (storage.device_type() != c10::DeviceType::CUDA) return;
  const std::optional<int64_t> bytes = storage.sym_nbytes().maybe_as_int();
  if (!bytes || *bytes < kLeastBytes) return;
  // Not `mutable_data`: a look must not copy what is shared until it is written to.
  if (const void* address = storage.unsafeGetStorageImpl()->data_ptr().get())
    core().table->touch(address, reads_of(tensor, extents));
}

void touch(const c10::IValue& value, Extents extents) {
  if (value.isTensor()) return touch(value.toTensor(), extents);
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) touch(tensor, {});
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) touch(*tensor, {});
}

// Before each operator, on the thread that calls it. A backward pass calls operators too.
std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  const InputExtents extents(function.name(), inputs);
  for (size_t i = 0; i < inputs.size(); ++i) touch(inputs[i], extents.of(i));
  return nullptr;
}

void watch_uses() {
  at::addGlobalCallback(
      at::RecordFunctionCallback(before_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

void watch_uses_under_pressure() {
  core().table->on_pressure(watch_uses);
}

}  // namespace spillway::libtorch
