#include "trainer/serve/forward/kv_cache.h"

#include <array>

#include "trainer/serve/batching/block_pool.h"

namespace spillway::trainer::serve {

uint32_t cached_layers(const Architecture& model) {
  return model.has_decoder() ? model.decoder_layers : model.layers;
}

uint64_t bytes_of_block(const Architecture& model, at::ScalarType type) {
  return uint64_t{2} * kBlockTokens * model.key_width() * c10::elementSize(type);
}

KvCache::KvCache(const Architecture& model, uint32_t blocks, std::span<const at::Device> devices,
                 at::ScalarType type) {
  const std::array<int64_t, 3> sizes{int64_t{blocks} * kBlockTokens, model.key_value_heads, model.head_width};
  layers_.reserve(devices.size());
  for (const at::Device device : devices) {
    const auto options = at::device(device).dtype(type);
    layers_.push_back({at::zeros(sizes, options), at::zeros(sizes, options)});
  }
}

void KvCache::write(uint32_t layer, const at::Tensor& slots, const Pair& pair) {
  layers_[layer].key.index_copy_(0, slots, pair.key.squeeze(0).transpose(0, 1));
  layers_[layer].value.index_copy_(0, slots, pair.value.squeeze(0).transpose(0, 1));
}

KvCache::Pair KvCache::read(uint32_t layer, const at::Tensor& table) const {
  const at::Tensor blocks = table.flatten();
  const auto gathered = [&](const at::Tensor& all) {
    const int64_t heads = all.size(1), width = all.size(2);
    return all.view({-1, kBlockTokens, heads, width})
        .index_select(0, blocks)
        .view({table.size(0), table.size(1) * kBlockTokens, heads, width})
        .transpose(1, 2);
  };
  return {gathered(layers_[layer].key), gathered(layers_[layer].value)};
}

}  // namespace spillway::trainer::serve
