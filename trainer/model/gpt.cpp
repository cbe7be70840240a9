#include "trainer/model/gpt.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "trainer/data/corpus.h"
#include "trainer/model/block.h"

namespace spillway::trainer::gpt {
namespace {

// Size and initial deviation of each parameter of a layer; a deviation of -1 means ones.
struct Kind {
  const char* name;
  int rows, columns;  // in widths; columns 0: a vector
  double deviation;   // times 0.02 / sqrt(2 layers) for the products that write into the residual
};
constexpr double kOnes = -1, kSmall = 0.02, kResidual = 0.021;
constexpr Kind kLayerKinds[kPerLayer] = {{"norm_1.weight", 1, 0, kOnes},
                                         {"norm_1.bias", 1, 0, 0},
                                         {"attention.qkv.weight", 3, 1, kSmall},
                                         {"attention.qkv.bias", 3, 0, 0},
                                         {"attention.out.weight", 1, 1, kResidual},
                                         {"attention.out.bias", 1, 0, 0},
                                         {"norm_2.weight", 1, 0, kOnes},
                                         {"norm_2.bias", 1, 0, 0},
                                         {"mlp.in.weight", 4, 1, kSmall},
                                         {"mlp.in.bias", 4, 0, 0},
                                         {"mlp.out.weight", 1, 4, kResidual},
                                         {"mlp.out.bias", 1, 0, 0}};

at::Tensor initial(at::IntArrayRef sizes, double deviation, const at::Generator& generator) {
  if (deviation == kOnes) return at::ones(sizes);
  if (deviation == 0) return at::zeros(sizes);
  return at::empty(sizes).normal_(0, deviation, generator);
}

// Logits of every position: [sequences * context, vocabulary].
at::Tensor logits_of(const ModelConfig& model, at::TensorList p, const at::Tensor& tokens,
                     const std::set<uint32_t>& recompute, bool training) {
  const BlockSettings settings{model.heads, model.dropout, training};
  const at::Tensor inputs = tokens.narrow(1, 0, model.context);
  at::Tensor x = at::embedding(p[0], inputs) + p[1];
  if (model.dropout > 0) x = at::dropout(x, model.dropout, training);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    const at::TensorList parameters = p.slice(kBeforeLayers + layer * kPerLayer, kPerLayer);
    x = x.to(parameters[0].device());
    x = recompute.count(layer) ? recomputed_block(x, parameters, settings) : block(x, parameters, settings);
  }
  x = at::layer_norm(x.to(p[0].device()), {model.width}, p[p.size() - 2], p[p.size() - 1]);
  return at::linear(x, p[0]).flatten(0, 1);
}

at::Tensor targets_of(const ModelConfig& model, const at::Tensor& tokens) {
  return tokens.narrow(1, 1, model.context).reshape(-1);
}

}  // namespace

std::vector<std::string> parameter_names(const ModelConfig& model) {
  std::vector<std::string> names{"token_embedding.weight", "position_embedding.weight"};
  for (uint32_t layer = 0; layer < model.layers; ++layer)
    for (const Kind& kind : kLayerKinds) names.push_back("layer." + std::to_string(layer) + "." + kind.name);
  names.insert(names.end(), {"norm.weight", "norm.bias"});
  return names;
}

int layer_of(size_t index, const ModelConfig& model) {
  if (index < kBeforeLayers || index >= kBeforeLayers + model.layers * kPerLayer) return -1;
  return static_cast<int>((index - kBeforeLayers) / kPerLayer);
}

std::vector<at::Tensor> initial_parameters(const ModelConfig& model, uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const int64_t width = model.width;
  std::vector<at::Tensor> all{initial({Corpus::kVocabulary, width}, kSmall, generator),
                              initial({model.context, width}, kSmall, generator)};
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    for (const Kind& kind : kLayerKinds) {
      const double deviation =
          kind.deviation == kResidual ? kSmall / std::sqrt(2.0 * model.layers) : kind.deviation;
      const std::vector<int64_t> sizes = kind.columns
                                             ? std::vector<int64_t>{kind.rows * width, kind.columns * width}
                                             : std::vector<int64_t>{kind.rows * width};
      all.push_back(initial(sizes, deviation, generator));
    }
  }
  all.push_back(at::ones({width}));
  all.push_back(at::zeros({width}));
  return all;
}

at::Tensor loss_sum(const ModelConfig& model, at::TensorList parameters, const at::Tensor& tokens,
                    const std::set<uint32_t>& recompute, bool training) {
  const at::Tensor logits = logits_of(model, parameters, tokens, recompute, training);
  return at::cross_entropy_loss(logits, targets_of(model, tokens), {}, at::Reduction::Sum);
}

at::Tensor sequence_losses(const ModelConfig& model, at::TensorList parameters, const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = logits_of(model, parameters, tokens, {}, false);
  return at::cross_entropy_loss(logits, targets_of(model, tokens), {}, at::Reduction::None)
      .view({tokens.size(0), model.context})
      .sum(1);
}

}  // namespace spillway::trainer::gpt
