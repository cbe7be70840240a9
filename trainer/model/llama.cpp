// Llama, of Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); grouped queries of
// Ainslie et al., "GQA" (2023).
#include "trainer/model/families.h"
#include "trainer/model/operators.h"
#include "trainer/model/parts.h"
#include "trainer/model/shared_input.h"

namespace spillway::trainer {
namespace llama {

at::Tensor attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                     const Rotation& turns, const Attend& attend) {
  const at::Tensor normed = rms_norm(x, weights["input_layernorm.weight"], model.norm_epsilon);
  const auto heads = [&](const char* name, int64_t count) {
    return in_heads(weights.product(normed, name), count);
  };
  const at::Tensor query = heads("self_attn.q_proj.weight", model.heads);
  const at::Tensor key = heads("self_attn.k_proj.weight", model.key_value_heads);
  const at::Tensor value = heads("self_attn.v_proj.weight", model.key_value_heads);
  const at::Tensor mixed =
      attend(rotated(query, turns.cosine, turns.sine), rotated(key, turns.cosine, turns.sine), value);
  return weights.product(out_of_heads(mixed), "self_attn.o_proj.weight");
}

// reads: cosine and sine.
at::Tensor attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                     at::TensorList reads) {
  const int64_t groups = model.heads / model.key_value_heads;
  const auto whole = [groups](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    return causal_attention(query, for_groups(key, groups), for_groups(value, groups));
  };
  return attention(model, weights, x, {reads[0], reads[1]}, whole);
}

at::Tensor mlp(const Architecture& model, const LayerWeights& weights, const at::Tensor& x, at::TensorList) {
  const at::Tensor normed = rms_norm(x, weights["post_attention_layernorm.weight"], model.norm_epsilon);
  const at::Tensor gate = activated(weights.product(normed, "mlp.gate_proj.weight"), model.activation);
  return weights.product(gate * weights.product(normed, "mlp.up_proj.weight"), "mlp.down_proj.weight");
}

constexpr LayerPart kLayer[] = {{Part::kAttention, attention, 2}, {Part::kMlp, mlp}};

Head head_of(const Architecture& model, const LayerWeights& outer, const at::Tensor& x) {
  return {rms_norm(x, outer["model.norm.weight"], model.norm_epsilon),
          outer[model.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"]};
}

}  // namespace llama

Passage<Head> llama_head(const Forward& forward, at::Tensor tokens) {
  const Architecture& model = forward.model;
  const LayerWeights outer = forward.outer();
  TiedWeight words(outer["model.embed_tokens.weight"], forward.pieces);
  at::Tensor x = forward.input;
  if (forward.stage.is_first()) x = forward.with_dropout(at::embedding(words.next(), tokens));
  Rotation turns = rotation(tokens.size(1), model.head_width, model.rotary_base, outer.device());
  const Forward::Reads turns_on = [&](at::Device device) {
    turns = {turns.cosine.to(device), turns.sine.to(device)};
    return std::vector<at::Tensor>{turns.cosine, turns.sine};
  };
  x = co_await forward.run(0, model.layers, llama::kLayer, std::move(x), turns_on);
  if (!forward.stage.is_last()) co_return Head{x, {}};
  Head head = llama::head_of(model, outer, x);
  if (model.tied_head) head.weight = words.next();
  co_return std::move(head);
}

}  // namespace spillway::trainer
