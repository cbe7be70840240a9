#include "trainer/model/weights.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Int8Product : public torch::autograd::Function<Int8Product> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            const at::Tensor& codes, const at::Tensor& scales, int64_t layout) {
    context->save_for_backward({x});
    context->saved_data["codes"] = codes;
    context->saved_data["scales"] = scales;
    context->saved_data["layout"] = layout;
    const at::Tensor matrix = numbers_of({codes, scales}, x.scalar_type());
    return at::linear(x, of(layout) == MatrixLayout::kOutIn ? matrix : matrix.t());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0].flatten(0, -2);
    const at::Tensor gradient = gradients[0].flatten(0, -2);
    const bool out_in = of(context->saved_data["layout"].toInt()) == MatrixLayout::kOutIn;
    at::Tensor of_x;
    {
      const at::Tensor matrix =
          numbers_of({context->saved_data["codes"].toTensor(), context->saved_data["scales"].toTensor()},
                     x.scalar_type());
      of_x = at::mm(gradient, out_in ? matrix : matrix.t());
    }
    const at::Tensor of_matrix = out_in ? at::mm(gradient.t(), x) : at::mm(x.t(), gradient);
    return {of_x.view(context->get_saved_variables()[0].sizes()), of_matrix, {}, {}, {}};
  }

 private:
  static MatrixLayout of(int64_t number) { return static_cast<MatrixLayout>(number); }
};

}  // namespace

Int8Weight in_8_bits(const at::Tensor& matrix) {
  const at::Tensor floats = matrix.to(at::kFloat);
  const at::Tensor scales = (floats.abs().amax({1}) / kMostCode).clamp_min(kLeastScale).to(at::kBFloat16);
  const at::Tensor codes = (floats / scales.to(at::kFloat).unsqueeze(1)).round().clamp(-kMostCode, kMostCode);
  return {codes.to(at::kChar), scales};
}

at::Tensor numbers_of(const Int8Weight& weight, at::ScalarType type) {
  return weight.codes.to(type).mul_(weight.scales.to(type).unsqueeze(1));
}

at::Tensor stand_in(at::IntArrayRef sizes, at::Device device) {
  return at::zeros({1}, at::device(device).dtype(at::kBFloat16)).expand(sizes).detach().requires_grad_(true);
}

at::Tensor int8_product(const at::Tensor& x, const at::Tensor& stand_in, const Int8Weight& weight,
                        MatrixLayout layout) {
  return Int8Product::apply(x, stand_in, weight.codes, weight.scales, static_cast<int64_t>(layout));
}

}  // namespace spillway::trainer
