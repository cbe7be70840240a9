#include "trainer/model/run_parts.h"

#include <algorithm>
#include <stdexcept>

#include "trainer/model/operators.h"
#include "trainer/model/tiles/tiled_product.h"
#include "trainer/residency/activations/saved_tensors.h"
#include "trainer/step/random_state.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a backward needs beside tensors.
struct Call : torch::CustomClassHolder {
  Call(const LayerSettings& with, std::vector<BoundLayer> called)
      : settings(with), layers(std::move(called)) {}

  // x, then what the parts read; they are given back to `operator()`, and not held here.
  variable_list take_tensors(const at::Tensor& x) {
    variable_list tensors{x};
    for (BoundLayer& layer : layers)
      for (BoundPart& part : layer)
        for (at::Tensor& read : part.reads) tensors.push_back(std::exchange(read, {}));
    return tensors;
  }

  at::Tensor operator()(const variable_list& tensors) const {
    at::Tensor x = tensors[0];
    auto next = tensors.begin() + 1;
    for (BoundLayer layer : layers) {
      for (BoundPart& part : layer)
        for (at::Tensor& read : part.reads) read = *next++;
      if (layers.size() > 1)
        x = recomputed(settings, x, {std::move(layer)});
      else
        for (BoundPart& part : layer) x = run(settings, std::move(part), std::move(x));
    }
    return x;
  }

  LayerSettings settings;
  std::vector<BoundLayer> layers;
};

// Leaves of a graph of their own; the same ones need a gradient.
variable_list leaves_of(const variable_list& tensors) {
  variable_list leaves;
  leaves.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors)
    leaves.push_back(tensor.detach().requires_grad_(tensor.requires_grad()));
  return leaves;
}

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList tensors,
                            const c10::intrusive_ptr<Call>& call) {
    const variable_list all = tensors.vec();
    context->save_for_backward(all);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const bool draws = call->settings.training && call->settings.model->dropout > 0;
    if (draws) context->saved_data["random"] = RandomState::of(all[0].device()).tensors();
    // The forward is recorded, as the one in the backward will be, and the record dropped: LibTorch chooses
    // kernels of attention by whether a gradient is needed, and folds products by it.
    const at::AutoGradMode record(true);
    const KeeperScope nobody(nullptr);
    return (*call)(leaves_of(all)).detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const variable_list leaves = leaves_of(context->get_saved_variables());
    at::Tensor output;
    {
      std::optional<RandomStateGuard> random;
      if (const auto state = context->saved_data.find("random"); state != context->saved_data.end())
        random.emplace(RandomState::from_tensors(state->second.toTensorVector(), leaves[0].device()));
      const at::AutoGradMode record(true);
      output = (*call)(leaves);
    }
    torch::autograd::backward({output}, {gradients[0]});
    variable_list results;
    for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
    results.emplace_back();  // the call has no gradient
    return results;
  }
};

}  // namespace

size_t LayerWeights::index_of(std::string_view key) const {
  const auto found = std::find(keys_->begin(), keys_->end(), key);
  if (found == keys_->end()) throw std::logic_error("there is no parameter '" + std::string(key) + "' here");
  return static_cast<size_t>(found - keys_->begin());
}

at::Tensor LayerWeights::product(const at::Tensor& x, std::string_view key, MatrixLayout layout) const {
  const size_t index = index_of(key);
  if (TiledMatrix* tiled = weights_.tiled(index)) return tiled_product(x, {}, tiled, layout);
  const at::Tensor& matrix = weights_[index];
  if (const Int8Weight* int8 = weights_.int8(index)) return int8_product(x, matrix, *int8, layout);
  return at::linear(x, layout == MatrixLayout::kOutIn ? matrix : matrix.t());
}

void LayerWeights::append_to(std::vector<at::Tensor>* tensors) const {
  for (size_t i = 0; i < weights_.size(); ++i) {
    tensors->push_back(weights_[i]);
    if (const Int8Weight* int8 = weights_.int8(i))
      tensors->insert(tensors->end(), {int8->codes, int8->scales});
  }
}

at::Tensor run(const LayerSettings& settings, BoundPart part, at::Tensor x) {
  const Architecture& model = *settings.model;
  std::vector<at::Tensor*> inputs{&x};
  for (at::Tensor& read : part.reads) inputs.push_back(&read);
  part.used.begin(Pass::kForward);
  end_backward_before(part.used, inputs);
  x = x + dropped(part.function(model, part.weights, x, part.reads), model.dropout, settings.training);
  x = begin_backward_behind(part.used, x);
  part.used.end(Pass::kForward);
  return x;
}

at::Tensor recomputed(const LayerSettings& settings, const at::Tensor& x, std::vector<BoundLayer> layers) {
  const auto call = c10::make_intrusive<Call>(settings, std::move(layers));
  const variable_list tensors = call->take_tensors(x);
  return Recomputed::apply(at::TensorList(tensors), call);
}

}  // namespace spillway::trainer
