#include "libtorch/kernels/operators/alias.h"

#include <array>
#include <utility>

#include "libtorch/kernels/redirect.h"
#include "libtorch/kernels/simulator.h"

namespace spillway::kernels {
namespace {

const c10::DispatchKeySet kLazyBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

// Making a tensor costs two heap allocations: most operators find theirs here.
class Pool {
 public:
  at::Tensor take() { return count_ == 0 ? at::Tensor() : std::move(spare_[--count_]); }
  void give(at::Tensor&& tensor) {
    if (count_ < spare_.size()) spare_[count_++] = std::move(tensor);
  }

 private:
  std::array<at::Tensor, 8> spare_;
  size_t count_ = 0;
};

thread_local Pool pool;

// mutable_data() gives a lazy copy bytes of its own before they are written.
void* host_address(c10::StorageImpl* storage, bool writes) {
  auto* address = static_cast<char*>(writes ? storage->mutable_data() : const_cast<void*>(storage->data()));
  return address == nullptr ? nullptr : address + alias_offset();
}

c10::DataPtr host_data(void* address) {
  return {address, c10::Device(c10::DeviceType::CPU)};
}

bool has_lazy_bits(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kLazyBits);
}

at::Tensor reuse(at::Tensor spare, const at::Tensor& original, void* address, size_t bytes) {
  auto* impl = spare.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(host_data(address));
  storage->set_nbytes(bytes);
  if (impl->dtype() != original.dtype()) impl->set_storage_and_dtype(impl->storage(), original.dtype());
  const auto* source = original.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  if (source->is_wrapped_number()) impl->set_wrapped_number(true);
  return spare;
}

}  // namespace

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  const auto* source = like.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  if (source->is_wrapped_number()) impl->set_wrapped_number(true);
  if (C10_UNLIKELY(has_lazy_bits(like))) {
    made._set_conj(like.is_conj());
    made._set_neg(like.is_neg());
  }
  return made;
}

at::Tensor make_alias(const at::Tensor& original, bool writes) {
  auto* storage = original.storage().unsafeGetStorageImpl();
  void* address = host_address(storage, writes);
  if (!has_lazy_bits(original)) {
    if (at::Tensor spare = pool.take(); spare.defined()) {
      return reuse(std::move(spare), original, address, storage->nbytes());
    }
  }
  auto own = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage->nbytes(),
                                                   host_data(address), redirecting_allocator(),
                                                   /*resizable=*/true);
  return tensor_over(std::move(own), c10::DispatchKey::CPU, original);
}

at::Tensor make_alias_in(const c10::Storage& storage, const at::Tensor& original) {
  return tensor_over(storage, c10::DispatchKey::CPU, original);
}

void give_back(at::Tensor alias) noexcept {
  if (alias.use_count() != 1 || alias.storage().use_count() != 1 || alias.is_inference() ||
      has_lazy_bits(alias)) {
    return;
  }
  auto* impl = alias.unsafeGetTensorImpl();
  if (impl->is_wrapped_number()) impl->set_wrapped_number(false);
  pool.give(std::move(alias));
}

}  // namespace spillway::kernels
