// The tensors of one layer whose bytes live elsewhere, in one block, and are on a device for a while.
//
// On the device they are tensors whose memory comes and goes: `attach` gives them addresses, `detach` takes
// them away. Whoever shares their storage, such as what autograd has kept of a forward, sees the memory that
// they have at the time of its use, and LibTorch refuses to read one that has none.
//
// Thread-safety: one thread at a time. Ownership: shares the home of the bytes; of the device's memory
// nothing. Errors: those of the home.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "trainer/residency/homes/layer_home.h"

namespace spillway::trainer {

class LayerBlock {
 public:
  struct Part {
    std::vector<int64_t> sizes;
    at::ScalarType type{};
    size_t bytes() const { return size_t(c10::multiply_integers(sizes)) * c10::elementSize(type); }
  };
  // Makes a home for so many bytes.
  using MakeHome = std::function<std::shared_ptr<LayerHome>(int64_t bytes)>;

  // Uninitialised.
  LayerBlock(std::vector<Part> parts, at::Device device, const MakeHome& make_home);
  // Of one tensor, which has all bytes of its home.
  static LayerBlock of(Part part, at::Device device, std::shared_ptr<LayerHome> home);

  size_t size() const { return parts_.size(); }
  size_t bytes() const { return bytes_; }
  LayerHome& home() const { return *home_; }
  const at::Tensor& tensor(size_t part) const { return tensors_[part]; }
  // The numbers of a part in the bytes that the home gives.
  at::Tensor view(const at::Tensor& all, size_t part) const;
  // The same tensors with another home, which is to get the bytes first.
  void move_to(std::shared_ptr<LayerHome> home) { home_ = std::move(home); }
  // For another device, with the same home or with one of its own.
  LayerBlock on(at::Device device, std::shared_ptr<LayerHome> home) const;
  const std::shared_ptr<LayerHome>& shared_home() const { return home_; }

  // `memory`: of the device, of `bytes()` from a multiple of kTensorAlignment on.
  void attach(void* memory) const;
  void detach() const;

 private:
  LayerBlock() = default;
  void make_tensors(at::Device device);

  std::vector<Part> parts_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
  std::shared_ptr<LayerHome> home_;
  std::vector<at::Tensor> tensors_;
};

std::vector<LayerBlock::Part> parts_of(const std::vector<at::Tensor*>& tensors);

// Of these sizes on a device, without memory of its own.
at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType type, at::Device device);

}  // namespace spillway::trainer
