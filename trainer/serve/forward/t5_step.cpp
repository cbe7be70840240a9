#include <limits>

#include "trainer/serve/forward/cached_forward.h"

namespace spillway::trainer::serve {
namespace {

// The decoder: its own tokens with a bias of their distance, then the encoder's.
class Decoder {
 public:
  explicit Decoder(const CachedForward& step) : step_(step), model_(step.forward.model) {
    for (const Group& group : step.first().groups) biases_.push_back(bias_of(group));
  }

  at::Tensor run() {
    at::Tensor x = at::embedding(step_.forward.outer()["shared.weight"], step_.first().tokens);
    for (uint32_t number = 0; number < model_.decoder_layers; ++number) {
      const uint32_t layer = model_.layers + number;
      move_to(step_.device_of(layer), &x);
      x = x + own_attention(number, step_.of(layer, Part::kAttention), x);
      x = x + cross_attention(number, step_.of(layer, Part::kCrossAttention), x);
      x = x + t5::mlp(model_, step_.of(layer, Part::kMlp), x, {});
    }
    return x.to(step_.home());
  }

 private:
  // What a layer reads.
  void move_to(at::Device device, at::Tensor* x) {
    *x = x->to(device);
    for (at::Tensor& bias : biases_) bias = bias.to(device);
  }

  // [sequences, heads, tokens, places]
  at::Tensor bias_of(const Group& group) const {
    const at::Tensor& weight =
        step_.forward.outer()["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"];
    return at::embedding(weight, buckets_of(group.distance, false, model_.buckets, model_.furthest_bucket))
        .permute({0, 3, 1, 2})
        .masked_fill((group.distance > 0).unsqueeze(1), -std::numeric_limits<float>::infinity());
  }

  at::Tensor own_attention(uint32_t number, const LayerWeights& weights, const at::Tensor& x) const {
    const t5::AttentionWeights part{model_, weights, "SelfAttention."};
    const at::Tensor normed = part.normed(x), query = part.in_heads_of("q", normed);
    const StepBatch& batch = step_.batches.on(x.device());
    step_.cache.write(number, batch.slots, {part.in_heads_of("k", normed), part.in_heads_of("v", normed)});
    return part.out(mixed(query, [&](size_t i, const at::Tensor& own) {
      const KvCache::Pair read = step_.cache.read(number, batch.groups[i].table);
      return biased_attention(own, read.key, read.value, biases_[i]);
    }));
  }

  at::Tensor cross_attention(uint32_t number, const LayerWeights& weights, const at::Tensor& x) const {
    const t5::AttentionWeights part{model_, weights, "EncDecAttention."};
    const at::Tensor query = part.in_heads_of("q", part.normed(x));
    return part.out(mixed(query, [&](size_t i, const at::Tensor& own) {
      const Group& group = step_.batches.on(own.device()).groups[i];
      const KvCache::Pair read = step_.cache.read(number, group.source_table);
      return biased_attention(own, read.key, read.value, {}, group.source_padding);
    }));
  }

  using GroupAttention = c10::function_ref<at::Tensor(size_t group, const at::Tensor& query)>;
  at::Tensor mixed(const at::Tensor& query, const GroupAttention& attention) const {
    std::vector<at::Tensor> all;
    const std::vector<Group>& groups = step_.first().groups;
    for (size_t i = 0; i < groups.size(); ++i)
      all.push_back(in_rows(attention(i, rows_of(groups[i], query))));
    return all.size() == 1 ? all[0] : at::cat(all, 2);
  }

  const CachedForward& step_;
  const Architecture& model_;
  std::vector<at::Tensor> biases_;
};

// Its keys and values of every layer of the decoder.
void encode(const CachedForward& step, const NewSource& source) {
  const Architecture& model = step.forward.model;
  at::Tensor encoded = t5::encoded(step.forward, source.tokens), slots = source.slots;
  for (uint32_t number = 0; number < model.decoder_layers; ++number) {
    const uint32_t layer = model.layers + number;
    encoded = encoded.to(step.device_of(layer));
    slots = slots.to(step.device_of(layer));
    const LayerWeights weights = step.of(layer, Part::kCrossAttention);
    const t5::AttentionWeights part{model, weights, "EncDecAttention."};
    step.cache.write(number, slots, {part.in_heads_of("k", encoded), part.in_heads_of("v", encoded)});
  }
}

}  // namespace

Head t5_step(const CachedForward& step) {
  for (const NewSource& source : step.first().sources) encode(step, source);
  return t5::head_of(step.forward.model, step.forward.outer(), Decoder(step).run());
}

}  // namespace spillway::trainer::serve
