#include "trainer/residency/layer_uses.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ToldUnit : torch::CustomClassHolder {
  explicit ToldUnit(const UsedUnit& unit) : of(unit) {}
  const UsedUnit of;
};
using ToldUnitPtr = c10::intrusive_ptr<ToldUnit>;

UsedUnit told_by(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<ToldUnit>(context->saved_data["unit"].toCapsule())->of;
}

void remember(AutogradContext* context, const ToldUnitPtr& unit) {
  context->set_materialize_grads(false);
  context->saved_data["unit"] = c10::IValue::make_capsule(unit);
}

class BackwardEnds : public torch::autograd::Function<BackwardEnds> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const ToldUnitPtr& unit) {
    remember(context, unit);
    variable_list outputs;
    for (const at::Tensor& input : inputs) outputs.push_back(input.alias());
    return outputs;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    told_by(context).end(Pass::kBackward);
    gradients.emplace_back();  // the unit has no gradient
    return gradients;
  }
};

class BackwardBegins : public torch::autograd::Function<BackwardBegins> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output, const ToldUnitPtr& unit) {
    remember(context, unit);
    return output.alias();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    told_by(context).begin(Pass::kBackward);
    gradients.emplace_back();
    return gradients;
  }
};

bool is_recorded(const UsedUnit& unit) {
  return unit.uses != nullptr && at::GradMode::is_enabled();
}

}  // namespace

void end_backward_before(const UsedUnit& unit, std::vector<at::Tensor*> inputs) {
  std::erase_if(inputs, [](const at::Tensor* input) { return !input->requires_grad(); });
  if (!is_recorded(unit) || inputs.empty()) return;
  variable_list given;
  for (const at::Tensor* input : inputs) given.push_back(*input);
  const variable_list taken = BackwardEnds::apply(at::TensorList(given), c10::make_intrusive<ToldUnit>(unit));
  for (size_t i = 0; i < inputs.size(); ++i) *inputs[i] = taken[i];
}

at::Tensor begin_backward_behind(const UsedUnit& unit, const at::Tensor& output) {
  if (!is_recorded(unit) || !output.requires_grad()) return output;
  return BackwardBegins::apply(output, c10::make_intrusive<ToldUnit>(unit));
}

}  // namespace spillway::trainer
