// The operators that the families are made of. x is [sequences, tokens, width] everywhere.
//
// Results are of the type of x. Norms and softmax are computed in 32-bit floats, whatever that type is.
//
// Thread-safety: pure but for dropout, which draws from the device's generator. Errors: LibTorch's
// exceptions.
#pragma once
#include "trainer/libtorch.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer {

// x / sqrt(mean(x²) + epsilon) · weight, of Zhang and Sennrich, "Root Mean Square Layer Normalization"
// (2019).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

at::Tensor activated(const at::Tensor& x, Activation activation);

// With probability `share` zero, else scaled so that the mean stays.
at::Tensor dropped(const at::Tensor& x, double share, bool training);

// [sequences, tokens, heads · head_width] → [sequences, heads, tokens, head_width], and back.
at::Tensor in_heads(const at::Tensor& x, int64_t heads);
at::Tensor out_of_heads(const at::Tensor& x);

// Heads of keys or values, each repeated for the `groups` heads of queries that read it.
at::Tensor for_groups(const at::Tensor& heads, int64_t groups);

// A position sees itself and what comes before it; never the whole matrix of scores.
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

// Without a scale; `bias` [1, heads, tokens, key tokens] is added to the scores, if defined, and then
// `padding`, which has no gradient.
at::Tensor biased_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& bias, const at::Tensor& padding = {});

// For rows of `tokens` whose padding is less than 0: [sequences, 1, 1, tokens], minus infinity where a key is
// padding, so that no query sees it, and 0 elsewhere. REQUIRES: a token in each sequence.
at::Tensor padding_bias(const at::Tensor& tokens, at::ScalarType type);

// Rotary positions, of Su et al., "RoFormer" (2021), in transformers' order: element i of the first half of a
// head and element i of the second are a pair.
struct Rotation {
  at::Tensor cosine, sine;  // [tokens, head_width / 2]
};
Rotation rotation(int64_t tokens, int64_t head_width, double base, at::Device device);
// Of tokens at `positions`.
Rotation rotation_of(const at::Tensor& positions, int64_t head_width, double base);
at::Tensor rotated(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine);

// T5's bucket of each distance of a key from a query, of 64-bit integers. Half of the buckets are exact, the
// others grow by a power up to `furthest`.
at::Tensor buckets_of(at::Tensor distance, bool bidirectional, int64_t buckets, int64_t furthest);
// Of the distances between all tokens of a sequence: [tokens, tokens].
at::Tensor relative_buckets(int64_t tokens, bool bidirectional, int64_t buckets, int64_t furthest,
                            at::Device device);

}  // namespace spillway::trainer
