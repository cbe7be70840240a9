// A layer of a model: its weights by name, and its recomputation in the backward.
//
// Thread-safety: functions without state; a LayerWeights is read alone. Ownership: borrows tensors and keys.
// Errors: LibTorch's exceptions; std::logic_error for a key that the layer does not have.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/trainer/plan/architecture.h"
#include "trainer/libtorch.h"

namespace spillway::trainer {

// Tensors by key, in the order of the parameter table.
class LayerWeights {
 public:
  LayerWeights(const std::vector<std::string>& keys, at::TensorList tensors)
      : keys_(&keys), tensors_(tensors) {}

  const at::Tensor& operator[](std::string_view key) const;
  at::Device device() const { return tensors_.front().device(); }
  at::TensorList tensors() const { return tensors_; }
  const std::vector<std::string>& keys() const { return *keys_; }

 private:
  const std::vector<std::string>* keys_;
  at::TensorList tensors_;
};

struct LayerSettings {
  const Architecture* model = nullptr;  // must outlive the backward
  bool training = true;
};

// The layer's output, of the same shape as its first input. A function: what it reads beside its inputs and
// its weights would not be there when it is computed again.
using LayerFunction = at::Tensor (*)(const LayerSettings& settings, const LayerWeights& weights,
                                     at::TensorList inputs);

// The same bits as `function` gives, but only inputs and weights are kept; the rest is computed again in the
// backward, from the random state that the forward had. `weights.keys()` must outlive the backward.
at::Tensor recomputed(LayerFunction function, const LayerSettings& settings, const LayerWeights& weights,
                      const std::vector<at::Tensor>& inputs);

}  // namespace spillway::trainer
