#include "trainer/model/block.h"

#include "trainer/step/random_state.h"

namespace spillway::trainer::gpt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor attention(const at::Tensor& x, at::TensorList p, const BlockSettings& settings) {
  const int64_t sequences = x.size(0), tokens = x.size(1), width = x.size(2);
  const auto parts = at::linear(x, p[0], p[1])
                         .view({sequences, tokens, 3, settings.heads, width / settings.heads})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
  const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
  return at::linear(mixed.transpose(1, 2).reshape({sequences, tokens, width}), p[2], p[3]);
}

at::Tensor dropped(const at::Tensor& x, const BlockSettings& settings) {
  return settings.dropout > 0 ? at::dropout(x, settings.dropout, settings.training) : x;
}

class RecomputedBlock : public torch::autograd::Function<RecomputedBlock> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList parameters,
                            const BlockSettings& settings) {
    variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["heads"] = settings.heads;
    context->saved_data["dropout"] = settings.dropout;
    context->saved_data["training"] = settings.training;
    if (settings.dropout > 0) context->saved_data["random"] = RandomState::of(x.device()).tensors();
    return block(x, parameters, settings);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const BlockSettings settings{context->saved_data["heads"].toInt(),
                                 context->saved_data["dropout"].toDouble(),
                                 context->saved_data["training"].toBool()};
    variable_list inputs = context->get_saved_variables();
    for (at::Tensor& input : inputs) input = input.detach().requires_grad_(true);
    at::Tensor output;
    {
      std::optional<RandomStateGuard> random;
      if (settings.dropout > 0)
        random.emplace(
            RandomState::from_tensors(context->saved_data["random"].toTensorVector(), inputs[0].device()));
      at::AutoGradMode record(true);
      output = block(inputs[0], at::TensorList(inputs).slice(1), settings);
    }
    variable_list results = torch::autograd::grad({output}, inputs, {gradients[0]});
    results.emplace_back();  // the settings have no gradient
    return results;
  }
};

}  // namespace

at::Tensor block(const at::Tensor& x, at::TensorList p, const BlockSettings& settings) {
  const int64_t width = x.size(2);
  const at::Tensor attended = attention(at::layer_norm(x, {width}, p[0], p[1]), p.slice(2, 4), settings);
  const at::Tensor middle = x + dropped(attended, settings);
  const at::Tensor hidden = at::gelu(at::linear(at::layer_norm(middle, {width}, p[6], p[7]), p[8], p[9]));
  return middle + dropped(at::linear(hidden, p[10], p[11]), settings);
}

at::Tensor recomputed_block(const at::Tensor& x, at::TensorList parameters, const BlockSettings& settings) {
  return RecomputedBlock::apply(x, parameters, settings);
}

}  // namespace spillway::trainer::gpt
