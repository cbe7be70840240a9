// A layer of a model: parts one after the other, each a function of named weights, and how some of them are
// computed again in the backward.
//
// Thread-safety: functions without state; a LayerWeights is read alone. Ownership: borrows keys and
// weights, which must outlive the backward. Errors: LibTorch's exceptions; std::logic_error for a key that
// the part does not have.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/weights.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer {

// Tensors by key, in the order of the parameter table.
class LayerWeights {
 public:
  LayerWeights(const std::vector<std::string>& keys, const Weights& weights)
      : keys_(&keys), weights_(weights) {}

  const at::Tensor& operator[](std::string_view key) const { return weights_[index_of(key)]; }
  // x times the matrix of that key, whole or in tiles, in floats or in 8 bits; x is [..., in].
  at::Tensor product(const at::Tensor& x, std::string_view key,
                     MatrixLayout layout = MatrixLayout::kOutIn) const;
  // nullptr for one that comes to its device as a whole.
  TiledMatrix* tiled(std::string_view key) const { return weights_.tiled(index_of(key)); }
  // nullptr for a weight of floats.
  const Int8Weight* int8(std::string_view key) const { return weights_.int8(index_of(key)); }
  at::Device device() const { return weights_[0].device(); }
  const std::vector<std::string>& keys() const { return *keys_; }
  // All that has memory, codes and scales too.
  void append_to(std::vector<at::Tensor>* tensors) const;

 private:
  size_t index_of(std::string_view key) const;

  const std::vector<std::string>* keys_;
  Weights weights_;
};

// What a part adds to x, of the same shape; dropout comes after it. A function: what it reads beside x, its
// weights and `reads` would not be there when it is computed again.
using PartFunction = at::Tensor (*)(const Architecture& model, const LayerWeights& weights,
                                    const at::Tensor& x, at::TensorList reads);

// A family's list of these is its layer.
struct LayerPart {
  Part part{};
  PartFunction function = nullptr;
  uint32_t reads = 0;  // tensors beside x: the next ones of those that the layer is given
};
using LayerParts = std::span<const LayerPart>;

// A part of one layer with what it is given.
struct BoundPart {
  Part part{};
  PartFunction function = nullptr;
  LayerWeights weights;
  std::vector<at::Tensor> reads;
  UsedUnit used;
};
using BoundLayer = std::vector<BoundPart>;

struct LayerSettings {
  const Architecture* model = nullptr;  // must outlive the backward
  bool training = true;
};

at::Tensor run(const LayerSettings& settings, BoundPart part, at::Tensor x);

// The same bits as `layers` give one after the other, but only x and what they read are kept. The rest is
// computed again in the backward, from the random state that the forward had: of several layers first the
// inputs of each, and then each by itself. The backward leaves the weights' gradients with the weights as it
// goes on, and does not return them. REQUIRES: x needs a gradient.
at::Tensor recomputed(const LayerSettings& settings, const at::Tensor& x, std::vector<BoundLayer> layers);

}  // namespace spillway::trainer
