#include "libtorch/kernels/call.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace spillway::kernels {
namespace {

constexpr size_t kLinear = 32;  // below it a scan of the arguments beats a hash table
constexpr uint64_t kLaunchNs = 2000;
constexpr uint64_t kBytesPerNs = 1000;  // 1 TB/s

const c10::DispatchKeySet kAboveBackend =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA});

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  const auto* source = like.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  if (source->is_wrapped_number()) impl->set_wrapped_number(true);
  if (C10_UNLIKELY(source->key_set().has_any(
          c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative})))) {
    made._set_conj(like.is_conj());
    made._set_neg(like.is_neg());
  }
  return made;
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

const Call::Argument* Call::find(const void* key) const {
  if (arguments_.size() < kLinear) {
    for (const Argument& argument : arguments_) {
      if (argument.original.unsafeGetTensorImpl() == key || argument.alias.unsafeGetTensorImpl() == key ||
          argument.original.storage().unsafeGetStorageImpl() == key ||
          argument.alias.storage().unsafeGetStorageImpl() == key) {
        return &argument;
      }
    }
    return nullptr;
  }
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &arguments_[found->second];
}

void Call::remember(const void* key, size_t index) {
  index_.try_emplace(key, index);
}

c10::Storage Call::alias_storage(const at::Tensor& original, bool writes) {
  auto* storage = original.storage().unsafeGetStorageImpl();
  if (const Argument* known = find(storage)) return known->alias.storage();
  // mutable_data() gives a lazy copy bytes of its own before they are written.
  auto* address = writes ? static_cast<char*>(storage->mutable_data())
                         : static_cast<char*>(const_cast<void*>(storage->data()));
  if (address != nullptr) address += alias_offset();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage->nbytes(),
                                               c10::DataPtr(address, c10::Device(c10::DeviceType::CPU)),
                                               redirecting_allocator(), /*resizable=*/true);
}

at::Tensor Call::argument(at::Tensor original, bool writes) {
  if (!original.defined()) return original;
  if (!original.is_cuda()) {
    TORCH_CHECK(original.dim() == 0 || !original.is_cpu() || host_arguments_allowed_,
                "Expected all tensors to be on the same device, but found at least two devices, cuda:",
                static_cast<int>(device_ < 0 ? 0 : device_), " and cpu! (in ", name_, ")");
    return original;
  }
  on_device(original.device().index());
  if (const Argument* known = find(original.unsafeGetTensorImpl())) {
    const_cast<Argument*>(known)->writes |= writes;
    return known->alias;
  }
  at::Tensor alias = tensor_over(alias_storage(original, writes), c10::DispatchKey::CPU, original);
  arguments_.push_back({std::move(original), alias, writes});
  if (C10_UNLIKELY(arguments_.size() >= kLinear)) {
    for (size_t i = arguments_.size() == kLinear ? 0 : arguments_.size() - 1; i < arguments_.size(); ++i) {
      remember(arguments_[i].original.unsafeGetTensorImpl(), i);
      remember(arguments_[i].alias.unsafeGetTensorImpl(), i);
      remember(arguments_[i].original.storage().unsafeGetStorageImpl(), i);
      remember(arguments_[i].alias.storage().unsafeGetStorageImpl(), i);
    }
  }
  return alias;
}

std::optional<at::Tensor> Call::argument(const std::optional<at::Tensor>& original) {
  if (!original.has_value()) return std::nullopt;
  return argument(*original);
}

void Call::on_device(c10::DeviceIndex device) {
  if (device < 0) return;
  TORCH_CHECK(device_ < 0 || device_ == device,
              "Expected all tensors to be on the same device, but found at least two devices, cuda:",
              static_cast<int>(device_), " and cuda:", static_cast<int>(device), "! (in ", name_, ")");
  device_ = device;
}

c10::DeviceIndex Call::device() {
  if (device_ < 0) device_ = c10::cuda::current_device();
  return device_;
}

void Call::add_range(const at::Tensor& tensor, bool writes) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->numel() == 0) return;
  int64_t last = 0;
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  const uint64_t bytes = static_cast<uint64_t>(last + 1) * impl->itemsize();
  ranges_.push_back({reinterpret_cast<CUdeviceptr>(impl->data()), bytes, writes ? 1u : 0u});
  touched_bytes_ += static_cast<uint64_t>(impl->numel()) * impl->itemsize();
}

void Call::begin() {
  const c10::DeviceIndex device = this->device();
  if (device != c10::cuda::current_device()) guard_.set_index(device);
  stream_ = c10::cuda::getCurrentCUDAStream(device).stream();
  for (const Argument& argument : arguments_) add_range(argument.original, argument.writes);
  if (!ranges_.empty()) {
    submit(stream_, name_, ranges_.data(), ranges_.size(), kLaunchNs + touched_bytes_ / kBytesPerNs);
    ranges_.clear();
  }
  below_autograd_.emplace(kAboveBackend);
  redirect_.emplace();
}

void Call::end() {
  redirect_.reset();
  below_autograd_.reset();
}

c10::Storage Call::adopt(const c10::Storage& computed) {
  const c10::Device device(c10::DeviceType::CUDA, device_);
  c10::DataPtr block = to_device_block(
      computed.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU))),
      device);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), computed.nbytes(),
                                               std::move(block), c10::cuda::CUDACachingAllocator::get(),
                                               /*resizable=*/true);
}

c10::Storage Call::device_storage(const at::Tensor& computed) {
  auto* storage = computed.storage().unsafeGetStorageImpl();
  if (const Argument* viewed = find(storage)) return viewed->original.storage();
  for (const Adopted& known : adopted_) {
    if (known.computed == storage) return known.device;
  }
  c10::Storage device;
  if (is_redirected(storage->data_ptr())) {
    device = adopt(computed.storage());
    adopted_.push_back({storage, device});
  } else {
    TORCH_CHECK(storage->nbytes() == 0, name_,
                ": its CPU kernel returned memory that did not come from the CUDA allocator");
    device = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), 0,
        c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CUDA, device_)),
        c10::cuda::CUDACachingAllocator::get(),
        /*resizable=*/true);
  }
  return device;
}

at::Tensor Call::result(const at::Tensor& computed) {
  if (!computed.defined() || !computed.is_cpu()) return computed;
  if (const Argument* known = find(computed.unsafeGetTensorImpl())) return known->original;
  at::Tensor made = tensor_over(device_storage(computed), c10::DispatchKey::CUDA, computed);
  add_range(made, true);
  return made;
}

// An `out=` argument that the kernel resized: the original keeps its storage object, which views of it share.
void Call::take_over_changes(const Argument& argument) {
  auto* alias = argument.alias.storage().unsafeGetStorageImpl();
  auto* original = argument.original.storage().unsafeGetStorageImpl();
  if (is_redirected(alias->data_ptr())) {
    original->set_data_ptr_noswap(
        to_device_block(alias->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU))),
                        c10::Device(c10::DeviceType::CUDA, device_)));
    original->set_nbytes(alias->nbytes());
  }
  if (same_layout(argument.original, argument.alias)) return;
  argument.original.unsafeGetTensorImpl()->set_sizes_and_strides(
      argument.alias.sizes(), argument.alias.strides(), argument.alias.storage_offset());
  add_range(argument.original, true);
}

void Call::finish() {
  for (const Argument& argument : arguments_) {
    if (argument.writes) take_over_changes(argument);
  }
  // What the kernel allocated is in use until the same virtual end: work of no length behind the kernel's.
  if (!ranges_.empty()) submit(stream_, name_, ranges_.data(), ranges_.size(), 0);
}

}  // namespace spillway::kernels
