#include "trainer/residency/layer_block.h"

#include "trainer/plan/parameters/weight_storage.h"

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

std::vector<LayerBlock::Part> parts_of(const std::vector<at::Tensor*>& tensors) {
  std::vector<LayerBlock::Part> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor* tensor : tensors) parts.push_back({tensor->sizes().vec(), tensor->scalar_type()});
  return parts;
}

LayerBlock::LayerBlock(std::vector<Part> parts, at::Device device, const MakeHome& make_home)
    : parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    offsets_.push_back(bytes_);
    bytes_ += in_a_block(part.bytes());
  }
  home_ = make_home(int64_t(bytes_));
  make_tensors(device);
}

void LayerBlock::make_tensors(at::Device device) {
  for (const Part& part : parts_) tensors_.push_back(without_memory(part.sizes, part.type, device));
}

LayerBlock LayerBlock::of(Part part, at::Device device, std::shared_ptr<LayerHome> home) {
  LayerBlock block;
  block.bytes_ = part.bytes();
  block.parts_ = {std::move(part)};
  block.offsets_ = {0};
  block.home_ = std::move(home);
  block.make_tensors(device);
  return block;
}

LayerBlock LayerBlock::on(at::Device device, std::shared_ptr<LayerHome> home) const {
  LayerBlock other;
  other.parts_ = parts_, other.offsets_ = offsets_, other.bytes_ = bytes_, other.home_ = std::move(home);
  other.make_tensors(device);
  return other;
}

at::Tensor LayerBlock::view(const at::Tensor& all, size_t part) const {
  const Part& of = parts_[part];
  return all.narrow(0, int64_t(offsets_[part]), int64_t(of.bytes())).view(of.type).view(of.sizes);
}

void LayerBlock::attach(void* memory) const {
  for (size_t i = 0; i < parts_.size(); ++i)
    give(tensors_[i], static_cast<char*>(memory) + offsets_[i], parts_[i].bytes());
}

void LayerBlock::detach() const {
  for (const at::Tensor& tensor : tensors_) give(tensor, nullptr, 0);
}

}  // namespace spillway::trainer
