// Llama, of Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); grouped queries of
// Ainslie et al., "GQA" (2023).
#include "trainer/model/families.h"
#include "trainer/model/operators.h"

namespace spillway::trainer {
namespace llama {

at::Tensor attention(const at::Tensor& x, const Architecture& model, const LayerWeights& weights,
                     const at::Tensor& cosine, const at::Tensor& sine) {
  const int64_t groups = model.heads / model.key_value_heads;
  const at::Tensor query = in_heads(at::linear(x, weights["self_attn.q_proj.weight"]), model.heads);
  const at::Tensor key = in_heads(at::linear(x, weights["self_attn.k_proj.weight"]), model.key_value_heads);
  const at::Tensor value = in_heads(at::linear(x, weights["self_attn.v_proj.weight"]), model.key_value_heads);
  const at::Tensor mixed =
      causal_attention(rotated(query, cosine, sine), for_groups(rotated(key, cosine, sine), groups),
                       for_groups(value, groups));
  return at::linear(out_of_heads(mixed), weights["self_attn.o_proj.weight"]);
}

at::Tensor mlp(const at::Tensor& x, const Architecture& model, const LayerWeights& weights) {
  const at::Tensor gate = activated(at::linear(x, weights["mlp.gate_proj.weight"]), model.activation);
  return at::linear(gate * at::linear(x, weights["mlp.up_proj.weight"]), weights["mlp.down_proj.weight"]);
}

// inputs: x, cosine, sine.
at::Tensor layer(const LayerSettings& settings, const LayerWeights& weights, at::TensorList inputs) {
  const Architecture& model = *settings.model;
  const auto norm = [&](const at::Tensor& x, const char* name) {
    return rms_norm(x, weights[name], model.norm_epsilon);
  };
  const auto added = [&](const at::Tensor& x, const at::Tensor& part) {
    return x + dropped(part, model.dropout, settings.training);
  };
  const at::Tensor middle = added(
      inputs[0], attention(norm(inputs[0], "input_layernorm.weight"), model, weights, inputs[1], inputs[2]));
  return added(middle, mlp(norm(middle, "post_attention_layernorm.weight"), model, weights));
}

}  // namespace llama

at::Tensor llama_logits(const Forward& forward, const at::Tensor& tokens) {
  const Architecture& model = forward.model;
  const LayerWeights outer = forward.outer();
  const at::Tensor& embedding = outer["model.embed_tokens.weight"];
  at::Tensor x = forward.with_dropout(at::embedding(embedding, tokens));
  Rotation turns = rotation(tokens.size(1), model.head_width, model.rotary_base, outer.device());
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    const at::Device device = forward.device_of(layer);
    turns = {turns.cosine.to(device), turns.sine.to(device)};
    x = forward.run(layer, llama::layer, {x.to(device), turns.cosine, turns.sine});
  }
  x = rms_norm(x.to(outer.device()), outer["model.norm.weight"], model.norm_epsilon);
  return at::linear(x, model.tied_head ? embedding : outer["lm_head.weight"]);
}

}  // namespace spillway::trainer
