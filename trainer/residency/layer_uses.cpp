#include "trainer/residency/layer_uses.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ToldLayer : torch::CustomClassHolder {
  explicit ToldLayer(const UsedLayer& layer) : of(layer) {}
  const UsedLayer of;
};
using ToldLayerPtr = c10::intrusive_ptr<ToldLayer>;

UsedLayer told_by(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<ToldLayer>(context->saved_data["layer"].toCapsule())->of;
}

void remember(AutogradContext* context, const ToldLayerPtr& layer) {
  context->set_materialize_grads(false);
  context->saved_data["layer"] = c10::IValue::make_capsule(layer);
}

class BackwardEnds : public torch::autograd::Function<BackwardEnds> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const ToldLayerPtr& layer) {
    remember(context, layer);
    variable_list outputs;
    for (const at::Tensor& input : inputs) outputs.push_back(input.alias());
    return outputs;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    told_by(context).end(Pass::kBackward);
    gradients.emplace_back();  // the layer has no gradient
    return gradients;
  }
};

class BackwardBegins : public torch::autograd::Function<BackwardBegins> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output, const ToldLayerPtr& layer) {
    remember(context, layer);
    return output.alias();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    told_by(context).begin(Pass::kBackward);
    gradients.emplace_back();
    return gradients;
  }
};

bool is_recorded(const UsedLayer& layer) {
  return layer.uses != nullptr && at::GradMode::is_enabled();
}

}  // namespace

void end_backward_before(const UsedLayer& layer, std::vector<at::Tensor*> inputs) {
  std::erase_if(inputs, [](const at::Tensor* input) { return !input->requires_grad(); });
  if (!is_recorded(layer) || inputs.empty()) return;
  variable_list given;
  for (const at::Tensor* input : inputs) given.push_back(*input);
  const variable_list taken =
      BackwardEnds::apply(at::TensorList(given), c10::make_intrusive<ToldLayer>(layer));
  for (size_t i = 0; i < inputs.size(); ++i) *inputs[i] = taken[i];
}

at::Tensor begin_backward_behind(const UsedLayer& layer, const at::Tensor& output) {
  if (!is_recorded(layer) || !output.requires_grad()) return output;
  return BackwardBegins::apply(output, c10::make_intrusive<ToldLayer>(layer));
}

}  // namespace spillway::trainer
