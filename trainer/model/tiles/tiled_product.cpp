#include "trainer/model/tiles/tiled_product.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Cut = TiledMatrix::Cut;

struct TiledOperands : torch::CustomClassHolder {
  TiledOperands(TiledMatrix* of, MatrixLayout layout) : matrix(*of), out_in(layout == MatrixLayout::kOutIn) {}

  int64_t outputs() const { return out_in ? matrix.cut().rows : matrix.cut().columns; }
  int64_t inputs() const { return out_in ? matrix.cut().columns : matrix.cut().rows; }

  // x: [tokens, in]
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& bias) const {
    at::Tensor y = at::empty({x.size(0), outputs()}, x.options());
    matrix.for_each_tile(out_in ? Cut::kRows : Cut::kColumns,
                         [&](const at::Tensor& tile, int64_t first, int64_t count) {
                           at::Tensor to = y.narrow(1, first, count);
                           const at::Tensor factor = out_in ? tile.t() : tile;
                           if (bias)
                             at::addmm_out(to, bias->narrow(0, first, count), x, factor);
                           else
                             at::mm_out(to, x, factor);
                         });
    return y;
  }

  at::Tensor of_input(const at::Tensor& gradient) const {
    at::Tensor result = at::empty({gradient.size(0), inputs()}, gradient.options());
    matrix.for_each_tile(out_in ? Cut::kColumns : Cut::kRows,
                         [&](const at::Tensor& tile, int64_t first, int64_t count) {
                           at::Tensor to = result.narrow(1, first, count);
                           at::mm_out(to, gradient, out_in ? tile : tile.t());
                         });
    return result;
  }

  void accumulate(const at::Tensor& x, const at::Tensor& gradient) const {
    const at::Tensor &rows = out_in ? gradient : x, &columns = out_in ? x : gradient;
    matrix.accumulate(
        [&](int64_t first, int64_t count) { return at::mm(rows.narrow(1, first, count).t(), columns); });
  }

  TiledMatrix& matrix;
  const bool out_in;
};
using OperandsPtr = c10::intrusive_ptr<TiledOperands>;

class TiledProduct : public torch::autograd::Function<TiledProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& bias, const OperandsPtr& operands) {
    context->save_for_backward({x});
    context->saved_data["operands"] = c10::IValue::make_capsule(operands);
    context->saved_data["bias"] = bias.has_value();
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = operands->outputs();
    return operands->forward(x.flatten(0, -2), bias).view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto operands =
        c10::static_intrusive_pointer_cast<TiledOperands>(context->saved_data["operands"].toCapsule());
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor gradient = gradients[0].flatten(0, -2);
    const at::Tensor of_input = operands->of_input(gradient).view(x.sizes());
    operands->accumulate(x.flatten(0, -2), gradient);
    // Autograd sums what is larger than the bias over its tokens, as for a product with a bias.
    return {of_input, context->saved_data["bias"].toBool() ? gradient : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor tiled_product(const at::Tensor& x, const at::Tensor& bias, TiledMatrix* matrix,
                         MatrixLayout layout) {
  const std::optional<at::Tensor> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return TiledProduct::apply(x, added, c10::make_intrusive<TiledOperands>(matrix, layout));
}

}  // namespace spillway::trainer
