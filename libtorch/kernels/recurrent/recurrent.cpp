#include "libtorch/kernels/recurrent/recurrent.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_cudnn_init_dropout_state_native.h>
#include <ATen/ops/_cudnn_rnn_backward_native.h>
#include <ATen/ops/_cudnn_rnn_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "libtorch/kernels/call.h"
#include "libtorch/kernels/operators/random.h"
#include "libtorch/kernels/recording.h"

namespace spillway::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;
using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor, Tensors>;

enum Mode : int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };  // cudnnRNNMode_t

// The layers of one call, on tensors of the host.
struct Layers {
  int64_t mode, count;
  bool batch_first, bidirectional;
  double dropout;
  at::IntArrayRef batch_sizes;  // of a packed sequence
  std::optional<DrawKey> draw;  // of the dropout between layers, if there is one

  Tensors run(const at::Tensor& input, const Tensors& weights, int64_t each, const at::Tensor& hx,
              const at::Tensor& cx) const;

 private:
  Tensors run_one(const at::Tensor& input, at::TensorList weights, const at::Tensor& hx,
                  const at::Tensor& cx) const;
};

Tensors list(std::tuple<at::Tensor, at::Tensor> pair) {
  return {std::move(std::get<0>(pair)), std::move(std::get<1>(pair))};
}

Tensors Layers::run_one(const at::Tensor& input, at::TensorList weights, const at::Tensor& hx,
                        const at::Tensor& cx) const {
  constexpr size_t kWithBiases = 4;
  const bool biases = weights.size() / (bidirectional ? 2 : 1) >= kWithBiases;
  const auto call = [&](auto function, const auto& state) {
    return batch_sizes.empty()
               ? function(input, state, weights, biases, 1, 0.0, false, bidirectional, batch_first)
               : function(input, at::tensor(batch_sizes, at::kLong), state, weights, biases, 1, 0.0, false,
                          bidirectional);
  };
  const auto lstm = [](auto&&... arguments) { return at::lstm(arguments...); };
  const auto gru = [](auto&&... arguments) { return at::gru(arguments...); };
  const auto tanh = [](auto&&... arguments) { return at::rnn_tanh(arguments...); };
  const auto relu = [](auto&&... arguments) { return at::rnn_relu(arguments...); };
  switch (mode) {
    case kLstm: {
      const std::array<at::Tensor, 2> state{hx, cx};
      auto [output, hy, cy] = call(lstm, at::TensorList(state));
      return {output, hy, cy};
    }
    case kGru:
      return list(call(gru, hx));
    case kTanh:
      return list(call(tanh, hx));
    default:
      return list(call(relu, hx));
  }
}

Tensors Layers::run(const at::Tensor& input, const Tensors& weights, int64_t each, const at::Tensor& hx,
                    const at::Tensor& cx) const {
  const int64_t directions = bidirectional ? 2 : 1;
  const at::Generator generator = draw ? generator_of(*draw) : at::Generator();
  at::Tensor output = input;
  std::array<Tensors, 2> states;
  for (int64_t layer = 0; layer < count; ++layer) {
    if (layer > 0 && draw) {
      const double keep = 1. - dropout;
      const at::Tensor mask = at::empty_like(output).bernoulli_(keep, generator);
      output = output * (keep == 0 ? mask : mask.div_(keep));
    }
    const auto its = at::TensorList(weights).slice(layer * directions * each, directions * each);
    const auto part = [&](const at::Tensor& state) {
      return state.defined() ? state.narrow(0, layer * directions, directions) : state;
    };
    Tensors made = run_one(output, its, part(hx), part(cx));
    output = made[0];
    for (size_t i = 1; i < made.size(); ++i) states[i - 1].push_back(made[i]);
  }
  Tensors results{output};
  for (const Tensors& parts : states)
    if (!parts.empty()) results.push_back(at::cat(parts));
  return results;
}

at::Tensor defined_or_none(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

// The draw of a forward pass, which its backward pass needs again, is kept in the bytes that cuDNN reserves.
void keep(DrawKey key, const at::Tensor& reserve) {
  TORCH_CHECK(reserve.nbytes() >= sizeof key, "aten::_cudnn_rnn: no reserve for the dropout's state");
  std::memcpy(reserve.mutable_data_ptr(), &key, sizeof key);
}
DrawKey kept(const at::Tensor& reserve) {
  DrawKey key{};
  TORCH_CHECK(reserve.nbytes() >= sizeof key, "aten::_cudnn_rnn_backward: the reserve is empty");
  std::memcpy(&key, reserve.const_data_ptr(), sizeof key);
  return key;
}

Tensors aliases(Call& call, at::TensorList tensors, bool writes = false) {
  Tensors made;
  for (const at::Tensor& tensor : tensors) made.push_back(call.argument(tensor, writes));
  return made;
}

int64_t gates_of(int64_t mode) {
  switch (mode) {
    case kLstm:
      return 4;
    case kGru:
      return 3;
    default:
      return 1;
  }
}

// The layers' parameters in their shapes: autocast gives each as a column of one buffer, all that cuDNN
// needs. A layer has two matrices, perhaps two biases, and perhaps a projection at the end.
Tensors in_shape(Tensors weights, int64_t each, int64_t rows, int64_t projection) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].dim() != 2 || weights[i].size(1) != 1) continue;
    const int64_t place = static_cast<int64_t>(i) % each;
    if (place < 2)
      weights[i] = weights[i].view({rows, -1});
    else if (projection > 0 && place == each - 1)
      weights[i] = weights[i].view({projection, -1});
    else
      weights[i] = weights[i].view({rows});
  }
  return weights;
}

// PyTorch's CUDA code, for the memory that it takes.
template <typename Function>
auto standing_in(Function* function) {
  return [function](auto&&... arguments) {
    const StandIn quiet;
    return function(std::forward<decltype(arguments)>(arguments)...);
  };
}

// Results as a graph's launch finds them, in the same order.
Forward replayed_forward() {
  const Tensors& made = replayed_results();
  return {made[0], made[1], made[2], made[3], made[4]};
}
Backward replayed_backward() {
  const Tensors& made = replayed_results();
  return {made[0], made[1], made[2], Tensors(made.begin() + 3, made.end())};
}

Forward cudnn_rnn(const at::Tensor& input, at::TensorList weight, int64_t each, const OptionalTensor& buffer,
                  const at::Tensor& hx, const OptionalTensor& cx, int64_t mode, int64_t hidden,
                  int64_t projection, int64_t count, bool batch_first, double dropout, bool train,
                  bool bidirectional, at::IntArrayRef batch_sizes, const OptionalTensor& dropout_state) {
  Forward made = is_replaying() ? replayed_forward()
                                : standing_in(&at::native::_cudnn_rnn)(
                                      input, weight, each, buffer, hx, cx, mode, hidden, projection, count,
                                      batch_first, dropout, train, bidirectional, batch_sizes, dropout_state);
  Call call("aten::_cudnn_rnn");
  const at::Tensor x = call.argument(input);
  const Tensors weights = in_shape(aliases(call, weight), each, gates_of(mode) * hidden, projection);
  const at::Tensor h = call.argument(hx), c = call.argument(defined_or_none(cx));
  const Tensors results =
      aliases(call, {std::get<0>(made), std::get<1>(made), std::get<2>(made)}, /*writes=*/true);
  const at::Tensor reserve = call.argument(std::get<3>(made), /*writes=*/true);
  Layers layers{mode, count, batch_first, bidirectional, dropout, batch_sizes, std::nullopt};
  if (train && dropout > 0 && count > 1) layers.draw = next_draw(std::nullopt, call.device());
  call.begin();
  {
    const HostScope host;
    if (layers.draw) keep(*layers.draw, reserve);
    const Tensors computed = layers.run(x, weights, each, h, c);
    for (size_t i = 0; i < computed.size(); ++i) results[i].copy_(computed[i]);
  }
  call.end();
  call.finish();
  return made;
}

// Of `results` with respect to those of `leaves` that require it, as the CPU's own backward pass gives them.
Tensors gradients(const Tensors& results, const Tensors& of_results, const Tensors& leaves) {
  Tensors roots, seeds, wanted;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!of_results[i].defined()) continue;
    roots.push_back(results[i]);
    seeds.push_back(of_results[i].to(results[i].scalar_type()));
  }
  for (const at::Tensor& leaf : leaves)
    if (leaf.defined() && leaf.requires_grad()) wanted.push_back(leaf);
  if (roots.empty() || wanted.empty()) return Tensors(leaves.size());
  const Tensors found = torch::autograd::grad(roots, wanted, seeds, /*retain_graph=*/false,
                                              /*create_graph=*/false, /*allow_unused=*/true);
  Tensors by_leaf;
  auto next = found.begin();
  for (const at::Tensor& leaf : leaves)
    by_leaf.push_back(leaf.defined() && leaf.requires_grad() ? *next++ : at::Tensor());
  return by_leaf;
}

at::Tensor leaf_of(const at::Tensor& tensor, bool wanted) {
  return tensor.defined() ? tensor.detach().requires_grad_(wanted) : tensor;
}

Backward cudnn_rnn_backward(const at::Tensor& input, at::TensorList weight, int64_t each,
                            const at::Tensor& buffer, const at::Tensor& hx, const OptionalTensor& cx,
                            const at::Tensor& output, const OptionalTensor& grad_output,
                            const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, int64_t mode,
                            int64_t hidden, int64_t projection, int64_t count, bool batch_first,
                            double dropout, bool train, bool bidirectional, at::IntArrayRef batch_sizes,
                            const OptionalTensor& dropout_state, const at::Tensor& reserve,
                            std::array<bool, 4> wanted) {
  Backward made = is_replaying() ? replayed_backward()
                                 : standing_in(&at::native::_cudnn_rnn_backward)(
                                       input, weight, each, buffer, hx, cx, output, grad_output, grad_hy,
                                       grad_cy, mode, hidden, projection, count, batch_first, dropout, train,
                                       bidirectional, batch_sizes, dropout_state, reserve, wanted);
  Call call("aten::_cudnn_rnn_backward");
  const at::Tensor x = call.argument(input);
  const Tensors weights = in_shape(aliases(call, weight), each, gates_of(mode) * hidden, projection);
  const at::Tensor h = call.argument(hx), c = call.argument(defined_or_none(cx));
  const Tensors seeds =
      aliases(call, {defined_or_none(grad_output), defined_or_none(grad_hy), defined_or_none(grad_cy)});
  const at::Tensor kept_bytes = call.argument(reserve);
  Tensors results = aliases(call, {std::get<0>(made), std::get<1>(made), std::get<2>(made)}, true);
  for (at::Tensor& one : aliases(call, std::get<3>(made), true)) results.push_back(std::move(one));
  Layers layers{mode, count, batch_first, bidirectional, dropout, batch_sizes, std::nullopt};
  call.begin();
  {
    const HostScope host;
    if (train && dropout > 0 && count > 1) layers.draw = kept(kept_bytes);
    const c10::impl::ForceDispatchKeyGuard with_autograd{c10::default_included_set,
                                                         c10::default_excluded_set};
    const at::AutoGradMode recording(true);
    Tensors leaves{leaf_of(x, wanted[0]), leaf_of(h, wanted[1]), leaf_of(c, wanted[2])};
    for (const at::Tensor& one : weights) leaves.push_back(leaf_of(one, wanted[3]));
    const Tensors computed =
        layers.run(leaves[0], Tensors(leaves.begin() + 3, leaves.end()), each, leaves[1], leaves[2]);
    const Tensors found = gradients(computed, seeds, leaves);
    const at::NoGradGuard writing;
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i].defined() && found[i].defined()) results[i].copy_(found[i].view_as(results[i]));
  }
  call.end();
  call.finish();
  return made;
}

at::Tensor init_dropout_state(double dropout, bool train, int64_t seed, std::optional<at::ScalarType> type,
                              std::optional<at::Layout> layout, std::optional<at::Device> device,
                              std::optional<bool> pinned) {
  if (is_replaying()) return replayed_results().front();
  return standing_in(&at::native::_cudnn_init_dropout_state)(dropout, train, seed, type, layout, device,
                                                             pinned);
}

}  // namespace

void register_recurrent(OwnKernels& library) {
  library.impl("_cudnn_init_dropout_state", &init_dropout_state);
  library.impl("_cudnn_rnn", &cudnn_rnn);
  library.impl("_cudnn_rnn_backward", &cudnn_rnn_backward);
  register_recurrent_cells(library);
}

}  // namespace spillway::kernels
