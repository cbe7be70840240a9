#include "libtorch/kernels/attention/attention_math.h"

#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace spillway::kernels {
namespace {

// As PyTorch chooses on a CPU.
bool flash_serves(const Attention& a) {
  return a.dropout == 0 && !a.learned_bias && a.query.size(-1) == a.value.size(-1) &&
         a.query.size(-1) == a.key.size(-1);
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

// The plain computation's intermediate values, in float at least. It is step by step that of
// at::_scaled_dot_product_attention_math and its autograd, so that values are those of a CPU that takes it.
struct Plain {
  at::Tensor query, key, value;  // [batch · heads, ...], the first two scaled; keys are transposed
  at::Tensor scores, weights, dropout_factor;
  double query_factor, key_factor;
};

at::Tensor merge_heads(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-2), tensor.size(-1)});
}

at::Tensor split_heads(const at::Tensor& merged, const at::Tensor& like) {
  return merged.view({like.size(0), like.size(1), merged.size(-2), merged.size(-1)});
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& like) {
  return split_heads(at::bmm(a, b), like);
}

Plain compute_weights(const Attention& a) {
  const at::ScalarType type = compute_type(a.query);
  const double scale = a.scale.value_or(1. / std::sqrt(static_cast<double>(a.query.size(-1))));
  Plain p;
  p.key_factor = std::sqrt(std::abs(scale));
  p.query_factor = scale < 0 ? -p.key_factor : p.key_factor;
  p.query = merge_heads(a.query.to(type).mul(p.query_factor));
  p.key = merge_heads(a.key.to(type).transpose(-2, -1).mul(p.key_factor));
  p.value = merge_heads(a.value.to(type));
  p.scores = product(p.query, p.key, a.query);
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

at::Tensor dropped(const at::Tensor& weights, const Plain& p) {
  return p.dropout_factor.defined() ? weights.mul(p.dropout_factor) : weights;
}

AttentionOutput attend_plainly(const Attention& a) {
  const Plain p = compute_weights(a);
  const at::Tensor output = product(merge_heads(dropped(p.weights, p)), p.value, a.query);
  return {output.to(a.query.scalar_type()), at::logsumexp(p.scores, -1)};
}

at::Tensor sum_to_bias(const at::Tensor& gradient, const at::Tensor& bias) {
  return gradient.sum_to_size(bias.sizes()).to(bias.scalar_type());
}

AttentionGradients attend_plainly_backward(const Attention& a, const at::Tensor& gradient,
                                           bool bias_gradient) {
  const Plain p = compute_weights(a);
  const at::Tensor out = merge_heads(gradient.to(p.query.scalar_type()));
  const at::Tensor weights = merge_heads(dropped(p.weights, p));
  const at::Tensor of_weights = dropped(product(out, p.value.transpose(1, 2), a.query), p);
  const at::Tensor of_scores = at::_softmax_backward_data(of_weights, p.weights, -1, p.weights.scalar_type());
  const at::Tensor merged = merge_heads(of_scores);
  const at::ScalarType type = a.query.scalar_type();
  AttentionGradients g;
  g.query = product(merged, p.key.transpose(1, 2), a.query).mul_(p.query_factor).to(type);
  g.key = product(p.query.transpose(1, 2), merged, a.query).mul_(p.key_factor).transpose(-2, -1).to(type);
  g.value = product(weights.transpose(1, 2), out, a.query).to(type);
  if (bias_gradient && a.bias) g.bias = sum_to_bias(of_scores, *a.bias);
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
