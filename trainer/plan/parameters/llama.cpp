// Llama in the layout of transformers' LlamaForCausalLM: products are stored [out, in].
#include "trainer/plan/parameters/table.h"

namespace spillway::trainer {

std::vector<Parameter> llama_table(const Architecture& model) {
  std::vector<Parameter> table;
  TableWriter write(&table);
  const int64_t width = model.width, hidden = model.hidden, queries = model.query_width(),
                keys = model.key_width();
  constexpr double kDeviation = 0.02;
  write.at(model.tied_head ? End::kBoth : End::kFirst);
  write.normal("model.embed_tokens.weight", {model.vocabulary, width}, kDeviation);
  write.at(End::kLast);
  write.ones("model.norm.weight", width);
  if (!model.tied_head) write.normal("lm_head.weight", {model.vocabulary, width}, kDeviation);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    write.in_layer(int(layer), "model.layers." + std::to_string(layer) + ".");
    write.in_part(Part::kAttention);
    write.ones("input_layernorm.weight", width);
    write.normal("self_attn.q_proj.weight", {queries, width}, kDeviation);
    write.normal("self_attn.k_proj.weight", {keys, width}, kDeviation);
    write.normal("self_attn.v_proj.weight", {keys, width}, kDeviation);
    write.normal("self_attn.o_proj.weight", {width, queries}, kDeviation);
    write.in_part(Part::kMlp);
    write.ones("post_attention_layernorm.weight", width);
    write.normal("mlp.gate_proj.weight", {hidden, width}, kDeviation);
    write.normal("mlp.up_proj.weight", {hidden, width}, kDeviation);
    write.normal("mlp.down_proj.weight", {width, hidden}, kDeviation);
  }
  return table;
}

}  // namespace spillway::trainer
