// T5, of Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
// (2020); its gated MLP of Shazeer, "GLU Variants Improve Transformer" (2020).
#include <cmath>
#include <limits>

#include "trainer/model/families.h"
#include "trainer/model/operators.h"
#include "trainer/model/parts.h"
#include "trainer/model/shared_input.h"

namespace spillway::trainer {
namespace t5 {

// "layer.1.", under which all weights of a part stand.
std::string prefix_of(const LayerWeights& weights) {
  const std::string& norm = weights.keys().front();
  return norm.substr(0, norm.find("layer_norm"));
}

at::Tensor norm(const Architecture& model, const LayerWeights& weights, const at::Tensor& x) {
  return rms_norm(x, weights[weights.keys().front()], model.norm_epsilon);
}

at::Tensor AttentionWeights::normed(const at::Tensor& x) const {
  return norm(model, weights, x);
}

at::Tensor AttentionWeights::in_heads_of(const char* part, const at::Tensor& x) const {
  return in_heads(weights.product(x, prefix_of(weights) + name + part + ".weight"), model.heads);
}

at::Tensor AttentionWeights::out(const at::Tensor& mixed) const {
  return weights.product(out_of_heads(mixed), prefix_of(weights) + name + "o.weight");
}

// Queries from `normed`, keys and values from `read`.
at::Tensor attention(const AttentionWeights& part, const at::Tensor& normed, const at::Tensor& read,
                     const at::Tensor& bias, const at::Tensor& padding) {
  return part.out(biased_attention(part.in_heads_of("q", normed), part.in_heads_of("k", read),
                                   part.in_heads_of("v", read), bias, padding));
}

// What a part reads behind its first tensor, where sources are padded.
at::Tensor padding_in(at::TensorList reads) {
  return reads.size() > 1 ? reads[1] : at::Tensor();
}

// reads: the bias of its own positions; in an encoder of padded sources also their padding's.
at::Tensor self_attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                          at::TensorList reads) {
  const AttentionWeights part{model, weights, "SelfAttention."};
  const at::Tensor normed = part.normed(x);
  return attention(part, normed, normed, reads[0], padding_in(reads));
}

// reads: the encoder's output; of padded sources also their padding's bias.
at::Tensor cross_attention(const Architecture& model, const LayerWeights& weights, const at::Tensor& x,
                           at::TensorList reads) {
  const AttentionWeights part{model, weights, "EncDecAttention."};
  return attention(part, part.normed(x), reads[0], {}, padding_in(reads));
}

at::Tensor mlp(const Architecture& model, const LayerWeights& weights, const at::Tensor& x, at::TensorList) {
  const std::string name = prefix_of(weights) + "DenseReluDense.";
  const at::Tensor normed = norm(model, weights, x);
  if (!model.gated)
    return weights.product(activated(weights.product(normed, name + "wi.weight"), model.activation),
                           name + "wo.weight");
  const at::Tensor gate = activated(weights.product(normed, name + "wi_0.weight"), model.activation);
  return weights.product(gate * weights.product(normed, name + "wi_1.weight"), name + "wo.weight");
}

constexpr LayerPart kEncoderLayer[] = {{Part::kAttention, self_attention, 1}, {Part::kMlp, mlp}};
constexpr LayerPart kDecoderLayer[] = {
    {Part::kAttention, self_attention, 1}, {Part::kCrossAttention, cross_attention, 1}, {Part::kMlp, mlp}};
// Of pairs. A target's padding stands behind its tokens, which see nothing behind themselves.
constexpr LayerPart kPaddedEncoderLayer[] = {{Part::kAttention, self_attention, 2}, {Part::kMlp, mlp}};
constexpr LayerPart kPaddedDecoderLayer[] = {
    {Part::kAttention, self_attention, 1}, {Part::kCrossAttention, cross_attention, 2}, {Part::kMlp, mlp}};

LayerParts parts_of(bool decoder, bool padded) {
  if (padded) return decoder ? LayerParts(kPaddedDecoderLayer) : LayerParts(kPaddedEncoderLayer);
  return decoder ? LayerParts(kDecoderLayer) : LayerParts(kEncoderLayer);
}

// [1, heads, tokens, tokens]
at::Tensor position_bias(const Forward& forward, const std::string& stack, int64_t tokens,
                         bool bidirectional) {
  const Architecture& model = forward.model;
  const at::Tensor& weight =
      forward.outer()[stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"];
  at::Tensor bias = at::embedding(weight, relative_buckets(tokens, bidirectional, model.buckets,
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

  // `padding`: the bias of the sources', or undefined.
  Passage<at::Tensor> run(at::Tensor embedding, at::Tensor tokens, SharedInput* encoded,
                          at::Tensor padding) const {
    SharedInput bias(position_bias(forward_, name_, tokens.size(1), encoded == nullptr), forward_.pieces);
    SharedInput hidden(padding, forward_.pieces);
    const Forward::Reads reads = [&](at::Device device) {
      std::vector<at::Tensor> tensors{bias.for_reader_on(device)};
      if (encoded != nullptr) tensors.push_back(encoded->for_reader_on(device));
      if (padding.defined()) tensors.push_back(hidden.for_reader_on(device));
      return tensors;
    };
    at::Tensor x = forward_.with_dropout(at::embedding(embedding, tokens));
    const LayerParts parts = parts_of(encoded != nullptr, padding.defined());
    x = co_await forward_.run(first_, count_, parts, std::move(x), reads);
    const LayerWeights outer = forward_.outer();
    co_return forward_.with_dropout(
        rms_norm(x, outer[name_ + ".final_layer_norm.weight"], forward_.model.norm_epsilon));
  }

 private:
  const Forward& forward_;
  const std::string name_;
  const uint32_t first_, count_;
};

// The tied head's embeddings have deviation 1; so scaled, the logits are as large as with one of its own.
double head_scale(const Architecture& model) {
  return 1 / std::sqrt(double(model.width));
}

// What the decoder is given to predict `targets`: a start, and every target but the last.
at::Tensor shifted(const at::Tensor& targets) {
  return at::constant_pad_nd(targets.narrow(1, 0, targets.size(1) - 1), {1, 0}, kPad);
}

// Ids of the embedding's: padding has the pad's.
at::Tensor embeddable(const at::Tensor& tokens, bool padded) {
  return padded ? tokens.clamp_min(kPad) : tokens;
}

at::Tensor encoded(const Forward& forward, const at::Tensor& tokens) {
  return Stack(forward, "encoder", 0, forward.model.layers)
      .run(forward.outer()["shared.weight"], tokens, nullptr, {})
      .finish();
}

Head head_of(const Architecture& model, const LayerWeights& outer, const at::Tensor& x) {
  const at::Tensor decoded = rms_norm(x, outer["decoder.final_layer_norm.weight"], model.norm_epsilon);
  if (!model.tied_head) return {decoded, outer["lm_head.weight"]};
  return {decoded * head_scale(model), outer["shared.weight"]};
}

}  // namespace t5

Passage<Head> t5_head(const Forward& forward, at::Tensor tokens, at::Tensor targets) {
  const Architecture& model = forward.model;
  const LayerWeights outer = forward.outer();
  const bool padded = model.has_pairs();
  SharedInput embedding(outer["shared.weight"], forward.pieces);
  const at::Tensor padding =
      padded ? padding_bias(tokens, outer["shared.weight"].scalar_type()) : at::Tensor();
  const t5::Stack encoder(forward, "encoder", 0, model.layers),
      decoder(forward, "decoder", model.layers, model.decoder_layers);
  SharedInput encoded(co_await encoder.run(embedding.for_reader_on(outer.device()),
                                           t5::embeddable(tokens, padded), nullptr, padding),
                      forward.pieces);
  const at::Tensor decoded =
      co_await decoder.run(embedding.for_reader_on(outer.device()),
                           t5::embeddable(t5::shifted(targets), padded), &encoded, padding);
  if (!model.tied_head) co_return Head{decoded, outer["lm_head.weight"], padded};
  co_return Head{decoded * t5::head_scale(model), embedding.for_reader_on(outer.device()), padded};
}

}  // namespace spillway::trainer
