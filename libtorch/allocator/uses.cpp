#include "libtorch/allocator/uses.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

// Smaller ones share their pages with others and are never moved.
constexpr size_t kLeastBytes = 2 << 20;

void touch(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  if (storage.nbytes() < kLeastBytes) return;
  // Not `mutable_data`: a look must not copy what is shared until it is written to.
  if (const void* address = storage.unsafeGetStorageImpl()->data_ptr().get()) core().table->touch(address);
}

void touch(const c10::IValue& value) {
  if (value.isTensor()) return touch(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) touch(tensor);
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
