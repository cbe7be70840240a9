// The parts of the families' layers, with the attention that their caller has: over the sequences of a batch
// in a training, over a cache of keys and values where text is made (trainer/serve). Each gives what it adds
// to x, without dropout.
//
// Thread-safety: pure functions. Errors: as of run_parts.h.
#pragma once
#include <c10/util/FunctionRef.h>

#include "trainer/model/forward.h"
#include "trainer/model/head.h"
#include "trainer/model/operators.h"

namespace spillway::trainer {

// What queries mix of values, in heads, all [sequences, heads, tokens, head width]. Of grouped queries there
// are fewer heads of keys and values.
using Attend =
    c10::function_ref<at::Tensor(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)>;

namespace gpt2 {
at::Tensor attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                     const Attend& attend);
at::Tensor mlp(const Architecture& model, const LayerWeights& weights, const at::Tensor& x, at::TensorList);
Head head_of(const Architecture& model, const LayerWeights& outer, const at::Tensor& x);
}  // namespace gpt2

namespace llama {
// `turns`: of the tokens' positions.
at::Tensor attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                     const Rotation& turns, const Attend& attend);
at::Tensor mlp(const Architecture& model, const LayerWeights& weights, const at::Tensor& x, at::TensorList);
Head head_of(const Architecture& model, const LayerWeights& outer, const at::Tensor& x);
}  // namespace llama

namespace t5 {
inline constexpr int64_t kPad = 0;  // also what a decoder starts from

// Where a decoder's layer attends: to its own tokens, or to the encoder's.
struct AttentionWeights {
  const Architecture& model;
  const LayerWeights& weights;
  const char* name;  // "SelfAttention." or "EncDecAttention."

  at::Tensor normed(const at::Tensor& x) const;
  at::Tensor in_heads_of(const char* part, const at::Tensor& x) const;  // "q", "k" or "v"
  at::Tensor out(const at::Tensor& mixed) const;
};
at::Tensor mlp(const Architecture& model, const LayerWeights& weights, const at::Tensor& x, at::TensorList);
// What the decoder reads of `tokens` [sequences, tokens] without padding.
at::Tensor encoded(const Forward& forward, const at::Tensor& tokens);
Head head_of(const Architecture& model, const LayerWeights& outer, const at::Tensor& x);
}  // namespace t5

}  // namespace spillway::trainer
