#include "trainer/residency/layer_block.h"

#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

void give(const at::Tensor& tensor, void* memory, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(memory, tensor.device()));
  storage->set_nbytes(bytes);
}

}  // namespace

at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType type, at::Device device) {
  at::Tensor tensor = at::empty({0}, at::device(device).dtype(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  give(tensor, nullptr, 0);
  return tensor;
}

LayerBlock::LayerBlock(std::vector<Part> parts, at::Device device) : parts_(std::move(parts)) {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    offsets_.push_back(bytes);
    bytes += in_a_block(part.bytes());
  }
  host_ = host_tensor({int64_t(bytes)}, at::kByte, device);
  make_tensors(device);
}

void LayerBlock::make_tensors(at::Device device) {
  for (const Part& part : parts_) tensors_.push_back(without_memory(part.sizes, part.type, device));
}

LayerBlock LayerBlock::of(const at::Tensor& host, at::Device device) {
  LayerBlock block;
  block.parts_ = {{host.sizes().vec(), host.scalar_type()}};
  block.offsets_ = {0};
  block.host_ = (host.is_contiguous() ? host.view({-1}) : host).view(at::kByte);
  block.make_tensors(device);
  return block;
}

LayerBlock LayerBlock::on(at::Device device) const {
  LayerBlock other;
  other.parts_ = parts_, other.offsets_ = offsets_, other.host_ = host_;
  other.make_tensors(device);
  return other;
}

at::Tensor LayerBlock::host(size_t part) const {
  const Part& of = parts_[part];
  return host_.narrow(0, int64_t(offsets_[part]), int64_t(of.bytes())).view(of.type).view(of.sizes);
}

void LayerBlock::attach(void* memory) const {
  for (size_t i = 0; i < parts_.size(); ++i)
    give(tensors_[i], static_cast<char*>(memory) + offsets_[i], parts_[i].bytes());
}

void LayerBlock::detach() const {
  for (const at::Tensor& tensor : tensors_) give(tensor, nullptr, 0);
}

}  // namespace spillway::trainer
