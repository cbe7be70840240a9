// One forward pass: what the families' functions are given.
//
// Thread-safety: one thread. Ownership: borrows everything. Errors: LibTorch's exceptions.
#pragma once
#include <functional>
#include <map>

#include "trainer/model/pieces/passage.h"
#include "trainer/model/pieces/pieces.h"
#include "trainer/model/run_parts.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/stages/stage.h"
#include "trainer/residency/activations/activation_pass.h"

namespace spillway::trainer {

// The keys of a model's parameters, and where each part's stand in the list of tensors.
struct ParameterKeys {
  explicit ParameterKeys(const Architecture& model);
  struct Group {
    size_t first = 0;
    std::vector<std::string> keys;
  };
  struct Layer {
    size_t first = 0, count = 0;
    std::map<Part, Group> parts;
  };
  std::vector<std::string> outer;  // of the parameters that belong to no layer; they come first
  std::vector<Layer> layers;
};

struct Forward {
  const Architecture& model;
  const ParameterKeys& keys;
  Weights parameters;
  const Plan& plan;  // what of it is computed again
  bool training = false;
  Pieces* pieces = nullptr;                               // that it stops between, if any
  std::shared_ptr<ActivationPass> activations = nullptr;  // none: all that is kept stays on the devices
  Stage stage{};                                          // of a pipeline over ranks: whose layers run
  at::Tensor input{};  // x behind the layers of the stages before it; of the first stage none

  LayerWeights outer() const { return {keys.outer, parameters.slice(0, keys.outer.size())}; }
  at::Device device_of(uint32_t layer) const { return parameters[keys.layers[layer].first].device(); }
  bool draws() const { return training && model.dropout > 0; }
  at::Tensor with_dropout(const at::Tensor& x) const;

  // What a layer's parts read beside x, on its device; asked once a layer, in their order.
  using Reads = std::function<std::vector<at::Tensor>(at::Device)>;
  // Of layers [first, first + count) those of the stage one after the other, each on its device, as the plan
  // has them, and back to the first device.
  Passage<at::Tensor> run(uint32_t first, uint32_t count, LayerParts parts, at::Tensor x, Reads reads) const;

 private:
  BoundLayer bound(uint32_t layer, LayerParts parts, const Reads& reads) const;
  // A layer that is not computed again as a whole.
  at::Tensor run_parts(uint32_t layer, BoundLayer parts, at::Tensor x) const;
  // Layers [layer, layer + group.size()), which are computed again together or not at all.
  at::Tensor computed(uint32_t layer, std::vector<BoundLayer> group, const at::Tensor& x) const;
  // What it keeps, kept as the plan says.
  at::Tensor run_group(uint32_t layer, std::vector<BoundLayer> group, const at::Tensor& x) const;
};

}  // namespace spillway::trainer
