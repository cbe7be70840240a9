// T5, of Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
// (2020); its gated MLP of Shazeer, "GLU Variants Improve Transformer" (2020).
#include <cmath>
#include <limits>

#include "trainer/model/families.h"
#include "trainer/model/operators.h"
#include "trainer/model/shared_input.h"

namespace spillway::trainer {
namespace t5 {

constexpr int64_t kPad = 0;  // also what a decoder starts from

// Queries from x, keys and values from `read`.
at::Tensor attention(const at::Tensor& x, const at::Tensor& read, const at::Tensor& bias,
                     const Architecture& model, const LayerWeights& weights, const std::string& name) {
  const auto heads = [&](const at::Tensor& of, const char* part) {
    return in_heads(at::linear(of, weights[name + part + ".weight"]), model.heads);
  };
  const at::Tensor mixed = biased_attention(heads(x, "q"), heads(read, "k"), heads(read, "v"), bias);
  return at::linear(out_of_heads(mixed), weights[name + "o.weight"]);
}

at::Tensor mlp(const at::Tensor& x, const Architecture& model, const LayerWeights& weights,
               const std::string& name) {
  if (!model.gated)
    return at::linear(activated(at::linear(x, weights[name + "wi.weight"]), model.activation),
                      weights[name + "wo.weight"]);
  const at::Tensor gate = activated(at::linear(x, weights[name + "wi_0.weight"]), model.activation);
  return at::linear(gate * at::linear(x, weights[name + "wi_1.weight"]), weights[name + "wo.weight"]);
}

// inputs: x, the bias of its own positions; of the decoder also the encoder's output.
at::Tensor layer(const LayerSettings& settings, const LayerWeights& weights, at::TensorList inputs) {
  const Architecture& model = *settings.model;
  at::Tensor x = inputs[0];
  int part = 0;
  const auto add = [&](const auto& function) {
    const std::string prefix = "layer." + std::to_string(part++) + ".";
    const at::Tensor normed = rms_norm(x, weights[prefix + "layer_norm.weight"], model.norm_epsilon);
    x = x + dropped(function(normed, prefix), model.dropout, settings.training);
  };
  add([&](const at::Tensor& normed, const std::string& prefix) {
    return attention(normed, normed, inputs[1], model, weights, prefix + "SelfAttention.");
  });
  if (inputs.size() > 2)
    add([&](const at::Tensor& normed, const std::string& prefix) {
      return attention(normed, inputs[2], {}, model, weights, prefix + "EncDecAttention.");
    });
  add([&](const at::Tensor& normed, const std::string& prefix) {
    return mlp(normed, model, weights, prefix + "DenseReluDense.");
  });
  return x;
}

// [1, heads, tokens, tokens]
at::Tensor position_bias(const Forward& forward, const std::string& stack, int64_t tokens,
                         bool bidirectional) {
  const Architecture& model = forward.model;
  const at::Tensor& weight =
      forward.outer()[stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"];
  const at::Tensor bias = at::embedding(weight, relative_buckets(tokens, bidirectional, model.buckets,
                                                                 model.furthest_bucket, weight.device()))
                              .permute({2, 0, 1})
                              .unsqueeze(0);
  if (bidirectional) return bias;
  const at::Tensor ahead = at::ones({tokens, tokens}, bias.options().dtype(at::kBool)).triu(1);
  return bias.masked_fill(ahead, -std::numeric_limits<float>::infinity());
}

// One of the two stacks, from token ids to the last norm's output.
class Stack {
 public:
  Stack(const Forward& forward, std::string name, uint32_t first, uint32_t count)
      : forward_(forward), name_(std::move(name)), first_(first), count_(count) {}

  at::Tensor run(const at::Tensor& embedding, const at::Tensor& tokens, SharedInput* encoded) const {
    SharedInput bias(position_bias(forward_, name_, tokens.size(1), encoded == nullptr));
    at::Tensor x = forward_.with_dropout(at::embedding(embedding, tokens));
    for (uint32_t layer = first_; layer < first_ + count_; ++layer) {
      const at::Device device = forward_.device_of(layer);
      std::vector<at::Tensor> inputs{x.to(device), bias.for_reader_on(device)};
      if (encoded != nullptr) inputs.push_back(encoded->for_reader_on(device));
      x = forward_.run(layer, t5::layer, inputs);
    }
    const LayerWeights outer = forward_.outer();
    return forward_.with_dropout(rms_norm(x.to(outer.device()), outer[name_ + ".final_layer_norm.weight"],
                                          forward_.model.norm_epsilon));
  }

 private:
  const Forward& forward_;
  const std::string name_;
  const uint32_t first_, count_;
};

// What the decoder is given to predict `targets`: a start, and every target but the last.
at::Tensor shifted(const at::Tensor& targets) {
  return at::constant_pad_nd(targets.narrow(1, 0, targets.size(1) - 1), {1, 0}, kPad);
}

}  // namespace t5

at::Tensor t5_logits(const Forward& forward, const at::Tensor& tokens, const at::Tensor& targets) {
  const Architecture& model = forward.model;
  const LayerWeights outer = forward.outer();
  SharedInput embedding(outer["shared.weight"]);
  SharedInput encoded(t5::Stack(forward, "encoder", 0, model.layers)
                          .run(embedding.for_reader_on(outer.device()), tokens, nullptr));
  const at::Tensor decoded =
      t5::Stack(forward, "decoder", model.layers, model.decoder_layers)
          .run(embedding.for_reader_on(outer.device()), t5::shifted(targets), &encoded);
  if (!model.tied_head) return at::linear(decoded, outer["lm_head.weight"]);
  // The tied head's embeddings have deviation 1; so scaled, the logits are as large as with one of its own.
  return at::linear(decoded * (1 / std::sqrt(double(model.width))), embedding.for_reader_on(outer.device()));
}

}  // namespace spillway::trainer
