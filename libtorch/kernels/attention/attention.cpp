#include "libtorch/kernels/attention/attention.h"

#include <ATen/ops/empty.h>

#include <array>
#include <tuple>

#include "libtorch/kernels/attention/attention_math.h"
#include "libtorch/kernels/call.h"

namespace spillway::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// A number that autograd carries from forward to backward as a tensor on the device.
at::Tensor scalar_tensor(uint64_t value) {
  return at::empty({}, at::TensorOptions().dtype(at::kLong)).fill_(static_cast<int64_t>(value));
}

uint64_t scalar_of(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.item<int64_t>());
}

struct Inputs {
  const at::Tensor &query, &key, &value;
  OptionalTensor bias;
  double dropout;
  bool causal;
  std::optional<double> scale;
};

Attention alias_inputs(Call& call, const Inputs& in) {
  Attention a{call.argument(in.query),
              call.argument(in.key),
              call.argument(in.value),
              std::nullopt,
              false,
              in.dropout,
              in.causal,
              in.scale,
              {}};
  if (in.bias && in.bias->defined()) {
    a.bias = call.argument(*in.bias);
    a.learned_bias = in.bias->requires_grad();
  }
  return a;
}

struct Forward {
  at::Tensor output, logsumexp, seed, offset;
};

// `keeps_draw`: the device holds the draw, be it used or not; otherwise an empty one stays on the host.
Forward forward(const char* name, const Inputs& in, bool keeps_draw) {
  Call call(name);
  Attention a = alias_inputs(call, in);
  if (in.dropout > 0) a.draw = next_draw(std::nullopt, call.device());
  call.begin();
  const AttentionOutput out = attend(a);
  at::Tensor seed, offset;
  if (keeps_draw) {
    seed = scalar_tensor(a.draw.seed);
    offset = scalar_tensor(a.draw.offset);
  }
  call.end();
  Forward result{call.result(out.output), call.result(out.logsumexp), {}, {}};
  result.seed = keeps_draw ? call.result(seed) : scalar_tensor(0);
  result.offset = keeps_draw ? call.result(offset) : scalar_tensor(0);
  call.finish();
  return result;
}

struct Saved {
  const at::Tensor &output, &logsumexp, &seed, &offset;
};

AttentionGradients backward(const char* name, const Inputs& in, const at::Tensor& gradient,
                            const Saved& saved, bool bias_gradient) {
  Call call(name);
  Attention a = alias_inputs(call, in);
  const at::Tensor out_gradient = call.argument(gradient);
  const AttentionOutput out{call.argument(saved.output), call.argument(saved.logsumexp)};
  const at::Tensor seed = call.argument(saved.seed);
  const at::Tensor offset = call.argument(saved.offset);
  call.begin();
  if (in.dropout > 0) a.draw = {scalar_of(seed), scalar_of(offset)};
  const AttentionGradients g = attend_backward(a, out_gradient, out, bias_gradient);
  call.end();
  AttentionGradients results{call.result(g.query), call.result(g.key), call.result(g.value),
                             call.result(g.bias)};
  call.finish();
  return results;
}

using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                               at::Tensor, at::Tensor, at::Tensor>;

FlashResult flash_result(Forward&& f, const at::Tensor& query, const at::Tensor& key) {
  return {std::move(f.output), std::move(f.logsumexp), at::Tensor(),        at::Tensor(), query.size(2),
          key.size(2),         std::move(f.seed),      std::move(f.offset), at::Tensor()};
}

FlashResult flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                  bool causal, bool debug_mask, std::optional<double> scale) {
  constexpr const char* kName = "aten::_scaled_dot_product_flash_attention";
  TORCH_CHECK_NOT_IMPLEMENTED(!debug_mask, kName,
                              " does not return its debug mask on a simulated CUDA device");
  const Inputs in{query, key, value, std::nullopt, dropout, causal, scale};
  return flash_result(forward(kName, in, /*keeps_draw=*/true), query, key);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&, int64_t,
    int64_t, double dropout, bool causal, const at::Tensor& seed, const at::Tensor& offset,
    std::optional<double> scale) {
  AttentionGradients g = backward("aten::_scaled_dot_product_flash_attention_backward",
                                  {query, key, value, std::nullopt, dropout, causal, scale}, gradient,
                                  {out, logsumexp, seed, offset}, false);
  return {std::move(g.query), std::move(g.key), std::move(g.value)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& bias, bool,
    double dropout, bool causal, std::optional<double> scale) {
  Forward f = forward("aten::_scaled_dot_product_efficient_attention",
                      {query, key, value, bias, dropout, causal, scale}, /*keeps_draw=*/dropout > 0);
  return {std::move(f.output), std::move(f.logsumexp), std::move(f.seed), std::move(f.offset)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& seed,
    const at::Tensor& offset, double dropout, std::array<bool, 4> wanted, bool causal,
    std::optional<double> scale) {
  if (!gradient.defined()) return {};
  AttentionGradients g = backward("aten::_scaled_dot_product_efficient_attention_backward",
                                  {query, key, value, bias, dropout, causal, scale}, gradient,
                                  {out, logsumexp, seed, offset}, wanted[3] && bias.defined());
  return {std::move(g.query), std::move(g.key), std::move(g.value), std::move(g.bias)};
}

FlashResult cudnn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const OptionalTensor& bias, bool, double dropout, bool causal, bool debug_mask,
                  std::optional<double> scale) {
  constexpr const char* kName = "aten::_scaled_dot_product_cudnn_attention";
  TORCH_CHECK_NOT_IMPLEMENTED(!debug_mask, kName,
                              " does not return its debug mask on a simulated CUDA device");
  return flash_result(forward(kName, {query, key, value, bias, dropout, causal, scale}, /*keeps_draw=*/true),
                      query, key);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cudnn_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& seed, const at::Tensor& offset,
    const at::Tensor& bias, const at::Tensor&, const at::Tensor&, int64_t, int64_t, double dropout,
    bool causal, std::optional<double> scale) {
  AttentionGradients g = backward("aten::_scaled_dot_product_cudnn_attention_backward",
                                  {query, key, value, bias, dropout, causal, scale}, gradient,
                                  {out, logsumexp, seed, offset}, false);
  return {std::move(g.query), std::move(g.key), std::move(g.value)};
}

}  // namespace

void register_attention(OwnKernels& library) {
  library.impl("_scaled_dot_product_flash_attention", &flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", &efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
  library.impl("_scaled_dot_product_cudnn_attention", &cudnn);
  library.impl("_scaled_dot_product_cudnn_attention_backward", &cudnn_backward);
}

}  // namespace spillway::kernels
