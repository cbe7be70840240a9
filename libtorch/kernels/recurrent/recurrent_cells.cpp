// The cells of nn.LSTMCell, nn.GRUCell and layers without cuDNN: one step in one kernel. What a cell keeps
// for its backward pass has the layout of PyTorch's CUDA kernels.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>
#include <utility>
#include <vector>

#include "libtorch/kernels/call.h"
#include "libtorch/kernels/recurrent/recurrent.h"

namespace spillway::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Five = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
}

// In the precision in which CUDA's kernels compute.
at::Tensor wide(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::toOpMathType(tensor.scalar_type())) : tensor;
}

at::Tensor biased(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? wide(gates) + wide(*bias) : wide(gates);
}

OptionalTensor argument(Call& call, const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? OptionalTensor(call.argument(*tensor)) : std::nullopt;
}

// The gradient of a bias: a kernel of its own on CUDA.
at::Tensor bias_gradient(const at::Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0, /*keepdim=*/false) : at::Tensor();
}

Three lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
                const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  Call call("aten::_thnn_fused_lstm_cell");
  const at::Tensor x = call.argument(input_gates), h = call.argument(hidden_gates), c = call.argument(cx);
  const OptionalTensor x_bias = argument(call, input_bias), h_bias = argument(call, hidden_bias);
  call.begin();
  const at::Tensor workspace = contiguous_like(x), hy = contiguous_like(c), cy = contiguous_like(c);
  {
    const HostScope host;
    const Tensors parts = (biased(x, x_bias) + biased(h, h_bias)).chunk(4, 1);
    const at::Tensor in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]);
    const at::Tensor cell = at::tanh(parts[2]), out = at::sigmoid(parts[3]);
    const at::Tensor next = forget * wide(c) + in * cell;
    workspace.copy_(at::cat({in, forget, cell, out}, 1));
    cy.copy_(next);
    hy.copy_(out * at::tanh(next));
  }
  call.end();
  Three results{call.result(hy), call.result(cy), call.result(workspace)};
  call.finish();
  return results;
}

Three lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
                         const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  if (!(grad_hy && grad_hy->defined()) && !(grad_cy && grad_cy->defined())) return {};
  Call call("aten::_thnn_fused_lstm_cell_backward_impl");
  const OptionalTensor of_hy = argument(call, grad_hy), of_cy = argument(call, grad_cy);
  const at::Tensor before = call.argument(cx), after = call.argument(cy), kept = call.argument(workspace);
  call.begin();
  const at::Tensor gates = contiguous_like(kept), grad_cx = contiguous_like(before);
  {
    const HostScope host;
    const Tensors parts = wide(kept).chunk(4, 1);
    const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
    const at::Tensor state = at::tanh(wide(after));
    const at::Tensor of_out = of_hy ? wide(*of_hy) : at::zeros_like(state);
    at::Tensor of_state = of_out * out * (1 - state * state);
    if (of_cy) of_state = of_state + wide(*of_cy);
    gates.copy_(at::cat({of_state * cell * (1 - in) * in, of_state * wide(before) * (1 - forget) * forget,
                         of_state * in * (1 - cell * cell), of_out * state * (1 - out) * out},
                        1));
    grad_cx.copy_(of_state * forget);
  }
  const at::Tensor bias = bias_gradient(gates, has_bias);
  call.end();
  Three results{call.result(gates), call.result(grad_cx), call.result(bias)};
  call.finish();
  return results;
}

Two gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  Call call("aten::_thnn_fused_gru_cell");
  const at::Tensor x = call.argument(input_gates), h = call.argument(hidden_gates);
  const at::Tensor state = call.argument(hx);
  const OptionalTensor x_bias = argument(call, input_bias), h_bias = argument(call, hidden_bias);
  call.begin();
  constexpr int64_t kKept = 5;
  const at::Tensor workspace = at::empty({state.size(0), state.size(1) * kKept}, state.options());
  const at::Tensor hy = contiguous_like(state);
  {
    const HostScope host;
    const Tensors from_x = biased(x, x_bias).chunk(3, 1), from_h = biased(h, h_bias).chunk(3, 1);
    const at::Tensor reset = at::sigmoid(from_x[0] + from_h[0]), update = at::sigmoid(from_x[1] + from_h[1]);
    const at::Tensor fresh = at::tanh(from_x[2] + reset * from_h[2]), before = wide(state);
    workspace.copy_(at::cat({reset, update, fresh, before, from_h[2]}, 1));
    hy.copy_(fresh + update * (before - fresh));
  }
  call.end();
  Two results{call.result(hy), call.result(workspace)};
  call.finish();
  return results;
}

Five gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  Call call("aten::_thnn_fused_gru_cell_backward");
  const at::Tensor of_hy = call.argument(grad_hy), kept = call.argument(workspace);
  call.begin();
  const at::Tensor from_x = at::empty({of_hy.size(0), of_hy.size(1) * 3}, kept.options());
  const at::Tensor from_h = at::empty(from_x.sizes(), kept.options());
  const at::Tensor grad_hx = contiguous_like(of_hy);
  {
    const HostScope host;
    const Tensors parts = wide(kept).chunk(5, 1);
    const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &before = parts[3];
    const at::Tensor of_out = wide(of_hy);
    const at::Tensor of_update = of_out * (before - fresh) * (1 - update) * update;
    const at::Tensor of_fresh = of_out * (1 - update) * (1 - fresh * fresh);
    const at::Tensor of_reset = of_fresh * parts[4] * (1 - reset) * reset;
    from_x.copy_(at::cat({of_reset, of_update, of_fresh}, 1));
    from_h.copy_(at::cat({of_reset, of_update, of_fresh * reset}, 1));
    grad_hx.copy_(of_out * update);
  }
  const at::Tensor x_bias = bias_gradient(from_x, has_bias), h_bias = bias_gradient(from_h, has_bias);
  call.end();
  Five results{call.result(from_x), call.result(from_h), call.result(grad_hx), call.result(x_bias),
               call.result(h_bias)};
  call.finish();
  return results;
}

}  // namespace

void register_recurrent_cells(OwnKernels& library) {
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

}  // namespace spillway::kernels
