// GPT-2, of Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
#include "trainer/model/families.h"
#include "trainer/model/operators.h"
#include "trainer/model/parts.h"
#include "trainer/model/shared_input.h"
#include "trainer/model/tiles/tiled_product.h"

namespace spillway::trainer {
namespace gpt2 {

// GPT-2 stores a product's weight as [in, out].
at::Tensor product(const at::Tensor& x, const LayerWeights& weights, const std::string& name) {
  const std::string key = name + ".weight";
  const at::Tensor &weight = weights[key], &bias = weights[name + ".bias"];
  if (TiledMatrix* tiled = weights.tiled(key)) return tiled_product(x, bias, tiled, MatrixLayout::kInOut);
  if (weights.int8(key)) return weights.product(x, key, MatrixLayout::kInOut) + bias;
  return at::addmm(bias, x.flatten(0, 1), weight).view({x.size(0), x.size(1), weight.size(1)});
}

at::Tensor norm(const at::Tensor& x, const Architecture& model, const LayerWeights& weights,
                const std::string& name) {
  return at::layer_norm(x, {model.width}, weights[name + ".weight"], weights[name + ".bias"],
                        model.norm_epsilon);
}

at::Tensor attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                     const Attend& attend) {
  const auto parts = product(norm(x, model, weights, "ln_1"), weights, "attn.c_attn").split(model.width, 2);
  const at::Tensor mixed = attend(in_heads(parts[0], model.heads), in_heads(parts[1], model.heads),
                                  in_heads(parts[2], model.heads));
  return product(out_of_heads(mixed), weights, "attn.c_proj");
}

at::Tensor attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                     at::TensorList) {
  return attention(model, weights, x, Attend(causal_attention));
}

at::Tensor mlp(const Architecture& model, const LayerWeights& weights, const at::Tensor& x, at::TensorList) {
  const at::Tensor hidden =
      activated(product(norm(x, model, weights, "ln_2"), weights, "mlp.c_fc"), model.activation);
  return product(hidden, weights, "mlp.c_proj");
}

constexpr LayerPart kLayer[] = {{Part::kAttention, attention}, {Part::kMlp, mlp}};

Head head_of(const Architecture& model, const LayerWeights& outer, const at::Tensor& x) {
  return {norm(x, model, outer, "transformer.ln_f"),
          outer[model.tied_head ? "transformer.wte.weight" : "lm_head.weight"]};
}

}  // namespace gpt2

Passage<Head> gpt2_head(const Forward& forward, at::Tensor tokens) {
  const LayerWeights outer = forward.outer();
  TiedWeight words(outer["transformer.wte.weight"], forward.pieces);
  at::Tensor x = forward.input;
  if (forward.stage.is_first())
    x = forward.with_dropout(at::embedding(words.next(), tokens) +
                             outer["transformer.wpe.weight"].narrow(0, 0, tokens.size(1)));
  const Forward::Reads nothing = [](at::Device) { return std::vector<at::Tensor>(); };
  x = co_await forward.run(0, forward.model.layers, gpt2::kLayer, std::move(x), nothing);
  if (!forward.stage.is_last()) co_return Head{x, {}};
  Head head = gpt2::head_of(forward.model, outer, x);
  if (forward.model.tied_head) head.weight = words.next();
  co_return std::move(head);
}

}  // namespace spillway::trainer
