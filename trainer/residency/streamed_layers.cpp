#include "trainer/residency/streamed_layers.h"

namespace spillway::trainer {

void StreamedLayers::add(uint32_t layer, at::Device device, LayerBlock block, bool is_zero) {
  auto& cache = caches_[device.index()];
  if (cache == nullptr) cache = std::make_unique<LayerCache>(device, slots_);
  cache->add(layer, std::move(block), is_zero);
  homes_[layer] = device.index();
}

void StreamedLayers::remove(uint32_t layer) {
  const auto cache = caches_.find(homes_.at(layer));
  cache->second->remove(layer);
  if (cache->second->empty()) caches_.erase(cache);
  homes_.erase(layer);
}

void StreamedLayers::follow(const std::vector<uint32_t>& uses) const {
  for_each(&LayerCache::reserve);
  for (const auto& [device, cache] : caches_) cache->follow(uses);
}

}  // namespace spillway::trainer
