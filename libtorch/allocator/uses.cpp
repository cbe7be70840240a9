#include "libtorch/allocator/uses.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

// Smaller ones share their pages with others and are never moved.
constexpr int64_t kLeastBytes = 2 << 20;

void touch(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  // Asked of the storage: a tensor that only stands for one may answer in Python, or have no size yet.
  if (storage.device_type() != c10::DeviceType::CUDA) return;
  const std::optional<int64_t> bytes = storage.sym_nbytes().maybe_as_int();
  if (!bytes || *bytes < kLeastBytes) return;
  // Not `mutable_data`: a look must not copy what is shared until it is written to.
  if (const void* address = storage.unsafeGetStorageImpl()->data_ptr().get()) core().table->touch(address);
}

void touch(const c10::IValue& value) {
  if (value.isTensor()) return touch(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) touch(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) touch(*tensor);
}

// Before each operator, on the thread that calls it. A backward pass calls operators too.
std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  for (const c10::IValue& input : function.inputs()) touch(input);
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
