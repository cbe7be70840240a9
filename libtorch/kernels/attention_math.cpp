#include "libtorch/kernels/attention_math.h"

#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace spillway::kernels {
namespace {

bool flash_serves(const Attention& a) {
  return a.dropout == 0 && a.query.size(-1) == a.value.size(-1) && a.query.size(-1) == a.key.size(-1);
}

// Every query head with its own copy of the key or value head that its group shares.
at::Tensor for_each_head(const at::Tensor& shared, const at::Tensor& query) {
  const int64_t groups = query.size(1) / shared.size(1);
  return groups == 1 ? shared : shared.repeat_interleave(groups, 1);
}

at::Tensor sum_over_group(const at::Tensor& gradient, const at::Tensor& shared) {
  const int64_t groups = gradient.size(1) / shared.size(1);
  if (groups == 1) return gradient;
  return gradient.unflatten(1, {shared.size(1), groups}).sum(2);
}

Attention with_own_heads(const Attention& a) {
  Attention own = a;
  own.key = for_each_head(a.key, a.query);
  own.value = for_each_head(a.value, a.query);
  return own;
}

at::ScalarType compute_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The plain computation's intermediate values, in float at least.
struct Plain {
  at::Tensor query, key, value, scores, weights, dropout_factor;
  double scale;
};

Plain compute_weights(const Attention& a) {
  const at::ScalarType type = compute_type(a.query);
  Plain p;
  p.scale = a.scale.value_or(1. / std::sqrt(static_cast<double>(a.query.size(-1))));
  p.query = a.query.to(type);
  p.key = a.key.to(type);
  p.value = a.value.to(type);
  p.scores = at::matmul(p.query, p.key.transpose(-2, -1)).mul_(p.scale);
  if (a.bias) p.scores.add_(a.bias->to(type));
  if (a.causal) {
    const at::Tensor future =
        at::ones({p.scores.size(-2), p.scores.size(-1)}, p.scores.options().dtype(at::kBool)).triu(1);
    p.scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  p.weights = at::_safe_softmax(p.scores, -1);
  if (a.dropout > 0) {
    const double keep = 1. - a.dropout;
    p.dropout_factor =
        at::empty(p.weights.sizes(), p.weights.options()).bernoulli_(keep, generator_of(a.draw));
    p.dropout_factor.mul_(keep == 0 ? 0. : 1. / keep);
  }
  return p;
}

AttentionOutput attend_plainly(const Attention& a) {
  const Plain p = compute_weights(a);
  const at::Tensor weights = p.dropout_factor.defined() ? p.weights.mul(p.dropout_factor) : p.weights;
  return {at::matmul(weights, p.value).to(a.query.scalar_type()), at::logsumexp(p.scores, -1)};
}

at::Tensor sum_to_bias(const at::Tensor& gradient, const at::Tensor& bias) {
  return gradient.sum_to_size(bias.sizes()).to(bias.scalar_type());
}

AttentionGradients attend_plainly_backward(const Attention& a, const at::Tensor& gradient,
                                           bool bias_gradient) {
  const Plain p = compute_weights(a);
  const at::Tensor out = gradient.to(p.query.scalar_type());
  const at::Tensor weights = p.dropout_factor.defined() ? p.weights.mul(p.dropout_factor) : p.weights;
  at::Tensor weight_gradient = at::matmul(out, p.value.transpose(-2, -1));
  if (p.dropout_factor.defined()) weight_gradient.mul_(p.dropout_factor);
  const at::Tensor along_row = weight_gradient.mul(p.weights).sum(-1, /*keepdim=*/true);
  const at::Tensor score_gradient = weight_gradient.sub_(along_row).mul_(p.weights);
  AttentionGradients g;
  const at::ScalarType type = a.query.scalar_type();
  g.query = at::matmul(score_gradient, p.key).mul_(p.scale).to(type);
  g.key = at::matmul(score_gradient.transpose(-2, -1), p.query).mul_(p.scale).to(type);
  g.value = at::matmul(weights.transpose(-2, -1), out).to(type);
  if (bias_gradient && a.bias) g.bias = sum_to_bias(score_gradient, *a.bias);
  return g;
}

}  // namespace

AttentionOutput attend(const Attention& attention) {
  const Attention a = with_own_heads(attention);
  if (!flash_serves(a)) return attend_plainly(a);
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(a.query, a.key, a.value, 0., a.causal, a.bias, a.scale);
  return {std::move(output), std::move(logsumexp)};
}

AttentionGradients attend_backward(const Attention& attention, const at::Tensor& gradient,
                                   const AttentionOutput& forward, bool bias_gradient) {
  const Attention a = with_own_heads(attention);
  AttentionGradients g;
  if (!flash_serves(a) || bias_gradient) {
    g = attend_plainly_backward(a, gradient, bias_gradient);
  } else {
    std::tie(g.query, g.key, g.value) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, a.query, a.key, a.value, forward.output, forward.logsumexp, 0., a.causal, a.bias, a.scale);
  }
  g.key = sum_over_group(g.key, attention.key);
  g.value = sum_over_group(g.value, attention.value);
  return g;
}

}  // namespace spillway::kernels
