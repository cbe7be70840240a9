// One forward pass: what the families' functions are given.
//
// Thread-safety: one thread. Ownership: borrows everything. Errors: LibTorch's exceptions.
#pragma once
#include <set>
#include <span>

#include "trainer/model/layer.h"

namespace spillway::trainer {

// The keys of a model's parameters, and where each layer's stand in the list of tensors.
struct ParameterKeys {
  explicit ParameterKeys(const Architecture& model);
  struct Layer {
    size_t first = 0;
    std::vector<std::string> keys;
  };
  std::vector<std::string> outer;  // of the parameters that belong to no layer; they come first
  std::vector<Layer> layers;
};

struct Forward {
  const Architecture& model;
  const ParameterKeys& keys;
  at::TensorList parameters;
  const std::set<uint32_t>& recompute;  // layers that keep only their inputs for the backward
  bool training = false;

  LayerWeights outer() const { return {keys.outer, parameters.slice(0, keys.outer.size())}; }
  LayerWeights layer(uint32_t index) const {
    const ParameterKeys::Layer& layer = keys.layers[index];
    return {layer.keys, parameters.slice(layer.first, layer.keys.size())};
  }
  at::Device device_of(uint32_t layer) const { return parameters[keys.layers[layer].first].device(); }

  // `inputs` must be on the layer's device.
  at::Tensor run(uint32_t layer, LayerFunction function, const std::vector<at::Tensor>& inputs) const;
  at::Tensor with_dropout(const at::Tensor& x) const;
};

}  // namespace spillway::trainer
