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

SharedInput::SharedInput(at::Tensor value, Pieces* pieces) : pieces_(pieces), rest_(std::move(value)) {
  if (pieces_ != nullptr) pieces_->share(this);
}

SharedInput::~SharedInput() {
  if (pieces_ != nullptr) pieces_->unshare(this);
}

at::Tensor SharedInput::for_reader_on(at::Device device) {
  rest_ = rest_.to(device);
  if (!rest_.requires_grad()) return rest_;
  variable_list both = Fork::apply(rest_);
  rest_ = std::move(both[1]);
  return std::move(both[0]);
}

}  // namespace spillway::trainer
