#include "trainer/residency/layer_block.h"

#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/residency/copy_stream.h"
#include "trainer/residency/homes.h"

namespace spillway::trainer {
namespace {

void give(const at::Tensor& tensor, void* memory, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(memory, tensor.device()));
  storage->set_nbytes(bytes);
}

at::Tensor without_memory(const LayerBlock::Part& part, at::Device device) {
  at::Tensor tensor = at::empty({0}, at::device(device).dtype(part.type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(part.sizes);
  give(tensor, nullptr, 0);
  return tensor;
}

}  // namespace

LayerBlock::LayerBlock(std::vector<Part> parts, at::Device device, at::Device home)
    : parts_(std::move(parts)) {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    offsets_.push_back(bytes);
    bytes += in_a_block(part.bytes());
  }
  host_ = home_tensor({int64_t(bytes)}, at::kByte, device, home);
  make_tensors(device);
}

void LayerBlock::make_tensors(at::Device device) {
  for (const Part& part : parts_) tensors_.push_back(without_memory(part, device));
}

LayerBlock LayerBlock::on(at::Device device) const {
  LayerBlock other;
  other.parts_ = parts_, other.offsets_ = offsets_, other.host_ = host_;
  other.make_tensors(device);
  return other;
}

LayerBlock LayerBlock::at_home(at::Device device, at::Device home) const {
  LayerBlock other = *this;
  other.host_ = home_tensor(host_.sizes(), at::kByte, device, home);
  copy_now(other.host_, host_);
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
