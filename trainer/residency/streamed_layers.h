// The layers whose tensors of one kind live on the host or on a peer, weights or gradients, over all devices.
//
// Thread-safety and errors: those of a LayerCache; layers are added and removed while none is in use.
// Ownership: owns a cache a device.
#pragma once
#include <functional>
#include <memory>

#include "trainer/residency/layer_cache.h"

namespace spillway::trainer {

class StreamedLayers {
 public:
  explicit StreamedLayers(uint32_t slots) : slots_(slots) {}

  bool has(uint32_t layer) const { return homes_.contains(layer); }
  bool empty() const { return homes_.empty(); }
  void add(uint32_t layer, at::Device device, LayerBlock block, bool is_zero);
  void remove(uint32_t layer);
  LayerCache& cache_of(uint32_t layer) const { return *caches_.at(homes_.at(layer)); }

  void begin(uint32_t layer, LayerCache::Use use) const {
    if (has(layer)) cache_of(layer).begin(layer, use);
  }
  void end(uint32_t layer, LayerCache::After after) const {
    if (has(layer)) cache_of(layer).end(layer, after);
  }
  // Slots first, where there are too few.
  void follow(const std::vector<uint32_t>& uses) const;
  void for_each(void (LayerCache::*function)()) const {
    for (const auto& [device, cache] : caches_) ((*cache).*function)();
  }

 private:
  const uint32_t slots_;
  std::map<uint32_t, int> homes_;                      // of a layer
  std::map<int, std::unique_ptr<LayerCache>> caches_;  // by device index
};

}  // namespace spillway::trainer
