#include "trainer/model/operators.h"

#include <cmath>
#include <limits>

namespace spillway::trainer {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor floats = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(floats.square().mean({-1}, true) + epsilon);
  return weight * (floats * scale).to(x.scalar_type());
}

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
  }
  return x;
}

at::Tensor dropped(const at::Tensor& x, double share, bool training) {
  return share > 0 ? at::dropout(x, share, training) : x;
}

at::Tensor in_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor out_of_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

at::Tensor for_groups(const at::Tensor& heads, int64_t groups) {
  if (groups == 1) return heads;
  const int64_t sequences = heads.size(0), given = heads.size(1), tokens = heads.size(2),
                width = heads.size(3);
  return heads.unsqueeze(2)
      .expand({sequences, given, groups, tokens, width})
      .reshape({sequences, given * groups, tokens, width});
}

at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return at::scaled_dot_product_attention(query, key, value, {}, 0.0, true);
}

at::Tensor biased_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& bias, const at::Tensor& padding) {
  at::Tensor scores = at::matmul(query, key.transpose(2, 3));
  if (bias.defined()) scores = scores + bias;
  if (padding.defined()) scores.add_(padding);  // in place: no other operator keeps these scores
  return at::matmul(at::softmax(scores, -1, at::kFloat).to(scores.scalar_type()), value);
}

at::Tensor padding_bias(const at::Tensor& tokens, at::ScalarType type) {
  return at::zeros({tokens.size(0), 1, 1, tokens.size(1)}, tokens.options().dtype(type))
      .masked_fill_(tokens.lt(0).unsqueeze(1).unsqueeze(1), -std::numeric_limits<float>::infinity());
}

Rotation rotation(int64_t tokens, int64_t head_width, double base, at::Device device) {
  return rotation_of(at::arange(tokens, at::device(device).dtype(at::kFloat)), head_width, base);
}

Rotation rotation_of(const at::Tensor& positions, int64_t head_width, double base) {
  const auto floats = positions.options().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, head_width, 2, floats) / double(head_width);
  const at::Tensor angles = at::outer(positions.to(at::kFloat), 1.0 / at::pow(base, exponents));
  return {angles.cos(), angles.sin()};
}

at::Tensor rotated(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine) {
  const auto halves = heads.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1)
      .to(heads.scalar_type());
}

at::Tensor relative_buckets(int64_t tokens, bool bidirectional, int64_t buckets, int64_t furthest,
                            at::Device device) {
  const at::Tensor positions = at::arange(tokens, at::TensorOptions().device(device).dtype(at::kLong));
  return buckets_of(positions.unsqueeze(0) - positions.unsqueeze(1), bidirectional, buckets, furthest);
}

at::Tensor buckets_of(at::Tensor distance, bool bidirectional, int64_t buckets, int64_t furthest) {
  at::Tensor result = at::zeros_like(distance);
  if (bidirectional) {
    buckets /= 2;
    result = (distance > 0).to(at::kLong) * buckets;
    distance = distance.abs();
  } else {
    distance = -at::minimum(distance, result);  // a key that lies ahead has the bucket of distance 0
  }
  const int64_t exact = buckets / 2;
  // A distance of 0 has no logarithm; it is exact and not taken from here.
  const at::Tensor growing = ((distance.to(at::kFloat).clamp_min(1) / double(exact)).log() /
                              std::log(double(furthest) / double(exact)) * double(buckets - exact))
                                 .to(at::kLong) +
                             exact;
  return result + at::where(distance < exact, distance, growing.clamp_max(buckets - 1));
}

}  // namespace spillway::trainer
