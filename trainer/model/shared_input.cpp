#include "trainer/model/shared_input.h"

#include <utility>

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Two aliases of a tensor.
class Fork : public torch::autograd::Function<Fork> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x) {
    context->set_materialize_grads(false);
    return {x.alias(), x.alias()};
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    const at::Tensor &one = gradients[0], &other = gradients[1];
    if (!one.defined() || !other.defined()) return {one.defined() ? one : other};
    return {one + other};
  }
};

}  // namespace

SharedInput::SharedInput(at::Tensor value) : rest_(std::move(value)) {}

at::Tensor SharedInput::take(at::Tensor* rest) {
  if (!rest->requires_grad()) return *rest;
  variable_list both = Fork::apply(*rest);
  *rest = std::move(both[1]);
  return std::move(both[0]);
}

at::Tensor SharedInput::for_reader_on(at::Device device) {
  if (device == rest_.device()) return take(&rest_);
  const auto [copy, is_new] = copies_.try_emplace(device.index());
  if (is_new) copy->second = take(&rest_).to(device);
  return take(&copy->second);
}

}  // namespace spillway::trainer
