// GPT-2 in the layout of transformers' GPT2LMHeadModel: products are stored [in, out].
#include <cmath>

#include "trainer/plan/parameters/table.h"

namespace spillway::trainer {

std::vector<Parameter> gpt2_table(const Architecture& model) {
  std::vector<Parameter> table;
  TableWriter write(&table);
  const int64_t width = model.width, hidden = model.hidden;
  constexpr double kDeviation = 0.02;
  // Smaller where a product adds to the residual, two of which every layer has (Radford et al., 2019).
  const double residual = kDeviation / std::sqrt(2.0 * model.layers);
  write.at(model.tied_head ? End::kBoth : End::kFirst);
  write.normal("transformer.wte.weight", {model.vocabulary, width}, kDeviation);
  write.at(End::kFirst);
  write.normal("transformer.wpe.weight", {model.positions(), width}, kDeviation);
  write.at(End::kLast);
  write.ones("transformer.ln_f.weight", width);
  write.zeros("transformer.ln_f.bias", width);
  if (!model.tied_head) write.normal("lm_head.weight", {model.vocabulary, width}, kDeviation);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    write.in_layer(int(layer), "transformer.h." + std::to_string(layer) + ".");
    write.in_part(Part::kAttention);
    write.ones("ln_1.weight", width);
    write.zeros("ln_1.bias", width);
    write.normal("attn.c_attn.weight", {width, 3 * width}, kDeviation);
    write.zeros("attn.c_attn.bias", 3 * width);
    write.normal("attn.c_proj.weight", {width, width}, residual);
    write.zeros("attn.c_proj.bias", width);
    write.in_part(Part::kMlp);
    write.ones("ln_2.weight", width);
    write.zeros("ln_2.bias", width);
    write.normal("mlp.c_fc.weight", {width, hidden}, kDeviation);
    write.zeros("mlp.c_fc.bias", hidden);
    write.normal("mlp.c_proj.weight", {hidden, width}, residual);
    write.zeros("mlp.c_proj.bias", width);
  }
  return table;
}

}  // namespace spillway::trainer
