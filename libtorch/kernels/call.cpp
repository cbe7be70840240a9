#include "libtorch/kernels/call.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <string_view>

#include "libtorch/kernels/operators/alias.h"
#include "libtorch/kernels/other_libraries.h"
#include "libtorch/kernels/recording.h"

namespace spillway::kernels {
namespace {

constexpr size_t kLinear = 32;  // below it a scan of the arguments beats a hash table
constexpr uint64_t kLaunchNs = 2000;
constexpr uint64_t kBytesPerNs = 1000;  // 1 TB/s

const c10::DispatchKeySet kAboveBackend =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA});

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
  const auto found = index_->find(key);
  return found == index_->end() ? nullptr : &arguments_[found->second];
}

void Call::remember(size_t index) {
  if (!index_) index_ = std::make_unique<std::unordered_map<const void*, size_t>>();
  const Argument& argument = arguments_[index];
  index_->try_emplace(argument.original.unsafeGetTensorImpl(), index);
  index_->try_emplace(argument.alias.unsafeGetTensorImpl(), index);
  index_->try_emplace(argument.original.storage().unsafeGetStorageImpl(), index);
  index_->try_emplace(argument.alias.storage().unsafeGetStorageImpl(), index);
}

at::Tensor Call::argument(at::Tensor original, bool writes) {
  if (!original.defined()) return original;
  if (!original.is_cuda()) {
    TORCH_CHECK(original.dim() == 0 || !original.is_cpu() || host_arguments_allowed_ || is_replaying(),
                "Expected all tensors to be on the same device, but found at least two devices, cuda:",
                static_cast<int>(device_ < 0 ? 0 : device_), " and cpu! (in ", name_, ")");
    return original;
  }
  on_device(original.device().index());
  if (is_sparse(original)) return sparse_argument(std::move(original), writes);
  if (const Argument* known = find(original.unsafeGetTensorImpl())) {
    const_cast<Argument*>(known)->writes |= writes;
    return known->alias;
  }
  const Argument* shares = find(original.storage().unsafeGetStorageImpl());
  at::Tensor alias =
      shares == nullptr ? make_alias(original, writes) : make_alias_in(shares->alias.storage(), original);
  arguments_.push_back({std::move(original), alias, writes});
  if (C10_UNLIKELY(arguments_.size() >= kLinear)) {
    const size_t first_new = arguments_.size() == kLinear ? 0 : arguments_.size() - 1;
    for (size_t i = first_new; i < arguments_.size(); ++i) remember(i);
  }
  return alias;
}

at::Tensor Call::sparse_argument(at::Tensor original, bool writes) {
  for (Argument& known : sparse_) {
    if (!known.original.is_same(original)) continue;
    known.writes |= writes;
    return known.alias;
  }
  SparseParts parts = parts_of(original);
  for (size_t i = 0; i < parts.count; ++i) parts.tensors[i] = argument(parts.tensors[i], writes);
  at::Tensor alias = sparse_of(parts, original);
  sparse_.push_back({std::move(original), alias, writes});
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

// The tensors of a product come first among its inputs.
libtorch::Extents Call::extents_of(size_t argument) const {
  if (!left_factor_ || arguments_.size() < *left_factor_ + 2) return {};
  return libtorch::extents_of(argument, *left_factor_, arguments_[*left_factor_].original,
                              arguments_[*left_factor_ + 1].original);
}

void Call::add_range(const at::Tensor& tensor, bool writes, libtorch::Extents extents) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->numel() == 0) return;
  int64_t last = 0;
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  const uint64_t bytes = static_cast<uint64_t>(last + 1) * impl->itemsize();
  ranges_.push_back(
      {reinterpret_cast<CUdeviceptr>(impl->data()), bytes, writes ? 1u : 0u, extents.own, extents.other});
  touched_bytes_ += static_cast<uint64_t>(impl->numel()) * impl->itemsize();
}

// Kernels of batch norm change the running statistics, which their schemas do not say.
bool Call::may_write(const Argument& argument) const {
  return argument.writes || std::string_view(name_).find("batch_norm") != std::string_view::npos;
}

// Notes what the captured operator is about to write.
void Call::record_arguments() {
  for (size_t i = 0; i < arguments_.size(); ++i)
    add_range(arguments_[i].original, may_write(arguments_[i]), extents_of(i));
  preserve_before_writing(stream_, ranges_.data(), ranges_.size());
  record_ranges(ranges_.data(), ranges_.size());
  ranges_.clear();
}

void Call::begin() {
  const c10::DeviceIndex device = this->device();
  left_factor_ = libtorch::left_factor(name_);
  if (is_replaying()) {  // the graph has its place on the stream already, and its memory
    below_autograd_.emplace(kAboveBackend);
    return;
  }
  if (device != c10::cuda::current_device()) guard_.set_index(device);
  stream_ = c10::cuda::getCurrentCUDAStream(device).stream();
  if (is_recording()) {
    record_arguments();
  } else {
    for (size_t i = 0; i < arguments_.size(); ++i)
      add_range(arguments_[i].original, arguments_[i].writes, extents_of(i));
    // Without ranges too: what is allocated below may be bytes that earlier work on the stream still writes.
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

// Makes the storage what the CUDA allocator would have given; a second tensor in it finds it done.
void Call::move_to_device(c10::StorageImpl* storage) {
  if (storage->device().is_cuda()) return;
  const c10::Device device(c10::DeviceType::CUDA, device_);
  c10::DataPtr block(nullptr, device);
  if (is_redirected(storage->data_ptr())) {
    block = to_device_block(std::move(storage->_mutable_data_ptr_no_checks()), device);
  } else {
    TORCH_CHECK(storage->nbytes() == 0, name_,
                ": its CPU kernel returned memory that did not come from the CUDA allocator");
  }
  storage->set_data_ptr_noswap(std::move(block));
  storage->set_allocator(c10::cuda::CUDACachingAllocator::get());
}

at::Tensor Call::result(const at::Tensor& computed) {
  if (!computed.defined() || !computed.is_cpu()) return computed;
  if (is_sparse(computed)) return sparse_result(computed);
  if (const Argument* known = find(computed.unsafeGetTensorImpl())) return known->original;
  const c10::Storage& storage = computed.storage();
  if (const Argument* viewed = find(storage.unsafeGetStorageImpl())) {
    return tensor_over(viewed->original.storage(), c10::DispatchKey::CUDA, computed);
  }
  if (is_replaying()) return computed;
  move_to_device(storage.unsafeGetStorageImpl());
  auto* impl = computed.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(c10::Storage(storage));  // its device follows the storage's
  impl->_change_backend_component_keys(storage.device());
  add_range(computed, true);
  return computed;
}

SparseParts Call::results(SparseParts parts) {
  for (size_t i = 0; i < parts.count; ++i) parts.tensors[i] = result(parts.tensors[i]);
  return parts;
}

at::Tensor Call::sparse_result(const at::Tensor& computed) {
  for (const Argument& known : sparse_)
    if (known.alias.is_same(computed)) return known.original;
  return sparse_of(results(parts_of(computed)), computed);
}

// An `out=` argument that the kernel resized: the original keeps its storage object, which views of it share.
void Call::take_over_changes(const Argument& argument) {
  auto* alias = argument.alias.storage().unsafeGetStorageImpl();
  auto* original = argument.original.storage().unsafeGetStorageImpl();
  if (is_redirected(alias->data_ptr())) {
    original->set_data_ptr_noswap(to_device_block(std::move(alias->_mutable_data_ptr_no_checks()),
                                                  c10::Device(c10::DeviceType::CUDA, device_)));
    original->set_nbytes(alias->nbytes());
  }
  if (same_layout(argument.original, argument.alias)) return;
  argument.original.unsafeGetTensorImpl()->set_sizes_and_strides(
      argument.alias.sizes(), argument.alias.strides(), argument.alias.storage_offset());
  add_range(argument.original, true);
}

void Call::finish() {
  for (const Argument& argument : sparse_) {
    if (argument.writes) assign(argument.original, results(parts_of(argument.alias)), argument.alias);
  }
  for (const Argument& argument : arguments_) {
    if (argument.writes) take_over_changes(argument);
  }
  for (Argument& argument : arguments_) give_back(std::move(argument.alias));
  // What the kernel allocated is in use until the same virtual end: work of no length behind the kernel's.
  if (!ranges_.empty() && is_recording())
    record_ranges(ranges_.data(), ranges_.size());
  else if (!ranges_.empty() && !is_replaying())
    submit(stream_, name_, ranges_.data(), ranges_.size(), 0);
  adopt_other_libraries();
}

}  // namespace spillway::kernels
