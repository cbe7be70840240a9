#include "trainer/serve/forward/cached_forward.h"

namespace spillway::trainer::serve {
namespace {

at::Tensor attended(const at::Tensor& query, const KvCache::Pair& read, const at::Tensor& seen) {
  return at::scaled_dot_product_attention(query, read.key, read.value, seen, 0.0, false);
}

// One token each: the queries of a group stand in a row, so that keys and values need not be repeated.
at::Tensor attended_by_groups(const at::Tensor& query, const KvCache::Pair& read, const at::Tensor& seen) {
  const int64_t heads = read.key.size(1), groups = query.size(1) / heads;
  return attended(query.reshape({query.size(0), heads, groups, query.size(3)}), read, seen)
      .reshape(query.sizes());
}

at::Tensor repeated_for(const at::Tensor& query, const at::Tensor& heads) {
  return for_groups(heads, query.size(1) / heads.size(1));
}

at::Tensor attended_by(const Group& group, const at::Tensor& query, const KvCache::Pair& read) {
  const at::Tensor seen = (group.distance <= 0).unsqueeze(1);
  if (group.tokens == 1) return attended_by_groups(query, read, seen);
  return attended(query, {repeated_for(query, read.key), repeated_for(query, read.value)}, seen);
}

}  // namespace

at::Tensor rows_of(const Group& group, const at::Tensor& heads) {
  return heads.narrow(2, group.first, group.sequences * group.tokens)
      .squeeze(0)
      .unflatten(1, {group.sequences, group.tokens})
      .transpose(0, 1);
}

at::Tensor in_rows(const at::Tensor& heads) {
  return heads.transpose(0, 1).flatten(1, 2).unsqueeze(0);
}

LayerWeights CachedForward::of(uint32_t layer, Part part) const {
  const ParameterKeys::Group& group = forward.keys.layers[layer].parts.at(part);
  return {group.keys, forward.parameters.slice(group.first, group.keys.size())};
}

at::Tensor CachedForward::attend(uint32_t numbered, const at::Tensor& query,
                                 const KvCache::Pair& fresh) const {
  const StepBatch& batch = batches.on(query.device());
  cache.write(numbered, batch.slots, fresh);
  std::vector<at::Tensor> mixed;
  for (const Group& group : batch.groups) {
    const at::Tensor own = rows_of(group, query);
    if (group.begins)
      mixed.push_back(in_rows(causal_attention(own, repeated_for(own, rows_of(group, fresh.key)),
                                               repeated_for(own, rows_of(group, fresh.value)))));
    else
      mixed.push_back(in_rows(attended_by(group, own, cache.read(numbered, group.table))));
  }
  return mixed.size() == 1 ? mixed[0] : at::cat(mixed, 2);
}

Head gpt2_step(const CachedForward& step) {
  const Architecture& model = step.forward.model;
  const LayerWeights outer = step.forward.outer();
  at::Tensor x = at::embedding(outer["transformer.wte.weight"], step.first().tokens) +
                 outer["transformer.wpe.weight"].index_select(0, step.first().positions);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    const auto attend = [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
      return step.attend(layer, query, {key, value});
    };
    x = x.to(step.device_of(layer));
    x = x + gpt2::attention(model, step.of(layer, Part::kAttention), x, Attend(attend));
    x = x + gpt2::mlp(model, step.of(layer, Part::kMlp), x, {});
  }
  return gpt2::head_of(model, outer, x.to(step.home()));
}

Head llama_step(const CachedForward& step) {
  const Architecture& model = step.forward.model;
  const LayerWeights outer = step.forward.outer();
  at::Tensor x = at::embedding(outer["model.embed_tokens.weight"], step.first().tokens);
  Rotation turns = rotation_of(step.first().positions, model.head_width, model.rotary_base);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    const auto attend = [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
      return step.attend(layer, query, {key, value});
    };
    const at::Device device = step.device_of(layer);
    x = x.to(device);
    turns = {turns.cosine.to(device), turns.sine.to(device)};
    x = x + llama::attention(model, step.of(layer, Part::kAttention), x, turns, Attend(attend));
    x = x + llama::mlp(model, step.of(layer, Part::kMlp), x, {});
  }
  return llama::head_of(model, outer, x.to(step.home()));
}

}  // namespace spillway::trainer::serve
