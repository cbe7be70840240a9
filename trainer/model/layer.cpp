#include "trainer/model/layer.h"

#include <algorithm>
#include <stdexcept>

#include "trainer/step/random_state.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a backward needs beside tensors.
struct Call : torch::CustomClassHolder {
  Call(LayerFunction called, const LayerSettings& with, const std::vector<std::string>& named, size_t given)
      : function(called), settings(with), keys(&named), inputs(given) {}

  at::Tensor operator()(const variable_list& tensors) const {
    const at::TensorList all(tensors);
    return function(settings, LayerWeights(*keys, all.slice(inputs)), all.slice(0, inputs));
  }

  LayerFunction function;
  LayerSettings settings;
  const std::vector<std::string>* keys;
  size_t inputs;
};

// Leaves of a graph of their own; the same ones need a gradient.
variable_list leaves_of(const variable_list& tensors) {
  variable_list leaves;
  leaves.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors)
    leaves.push_back(tensor.detach().requires_grad_(tensor.requires_grad()));
  return leaves;
}

// Gradients of `leaves`, none for those that need none.
variable_list gradients_of(const at::Tensor& output, const at::Tensor& gradient,
                           const variable_list& leaves) {
  variable_list wanted;
  std::copy_if(leaves.begin(), leaves.end(), std::back_inserter(wanted),
               [](const at::Tensor& leaf) { return leaf.requires_grad(); });
  const variable_list found = torch::autograd::grad({output}, wanted, {gradient}, {}, false, true);
  variable_list all(leaves.size());
  for (size_t i = 0, next = 0; i < leaves.size(); ++i)
    if (leaves[i].requires_grad()) all[i] = found[next++];
  return all;
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
    variable_list results = gradients_of(output, gradients[0], leaves);
    results.emplace_back();  // the call has no gradient
    return results;
  }
};

}  // namespace

const at::Tensor& LayerWeights::operator[](std::string_view key) const {
  const auto found = std::find(keys_->begin(), keys_->end(), key);
  if (found == keys_->end()) throw std::logic_error("the layer has no parameter '" + std::string(key) + "'");
  return tensors_[static_cast<size_t>(found - keys_->begin())];
}

at::Tensor recomputed(LayerFunction function, const LayerSettings& settings, const LayerWeights& weights,
                      const std::vector<at::Tensor>& inputs) {
  variable_list tensors = inputs;
  tensors.insert(tensors.end(), weights.tensors().begin(), weights.tensors().end());
  return Recomputed::apply(at::TensorList(tensors),
                           c10::make_intrusive<Call>(function, settings, weights.keys(), inputs.size()));
}

}  // namespace spillway::trainer
