// The tensors of one layer whose bytes live on the host or on a peer, in one block, and are on a device for a
// while.
//
// On the device they are tensors whose memory comes and goes: `attach` gives them addresses, `detach` takes
// them away. Whoever shares their storage, such as what autograd has kept of a forward, sees the memory that
// they have at the time of its use, and LibTorch refuses to read one that has none.
//
// Thread-safety: one thread at a time. Ownership: the bytes at home; of the device's memory nothing. Errors:
// c10::OutOfMemoryError of home_tensor.
#pragma once
#include <vector>

#include "trainer/libtorch.h"

namespace spillway::trainer {

class LayerBlock {
 public:
  struct Part {
    std::vector<int64_t> sizes;
    at::ScalarType type{};
    size_t bytes() const { return size_t(c10::multiply_integers(sizes)) * c10::elementSize(type); }
  };
  // Uninitialised. `home`: the CPU, which is the host, or a peer.
  LayerBlock(std::vector<Part> parts, at::Device device, at::Device home = at::kCPU);
  // The same bytes for another device.
  LayerBlock on(at::Device device) const;
  // The same tensors with a copy of the bytes at another home.
  LayerBlock at_home(at::Device device, at::Device home) const;

  size_t size() const { return parts_.size(); }
  size_t bytes() const { return size_t(host_.numel()); }
  const at::Tensor& all() const { return host_; }  // [bytes], at home
  at::Device home() const { return host_.device(); }
  at::Tensor host(size_t part) const;  // a view of it
  const at::Tensor& tensor(size_t part) const { return tensors_[part]; }

  // `memory`: of the device, of `bytes()` from a multiple of kTensorAlignment on.
  void attach(void* memory) const;
  void detach() const;

 private:
  LayerBlock() = default;
  void make_tensors(at::Device device);

  std::vector<Part> parts_;
  std::vector<size_t> offsets_;
  at::Tensor host_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace spillway::trainer
