// The layers whose tensors of one kind live elsewhere than on their device, weights or gradients, over all
// devices.
//
// Thread-safety and errors: those of a LayerCache; layers are added and removed while none is in use.
// Ownership: owns a cache a device.
#pragma once
#include <functional>
#include <memory>

#include "trainer/residency/homes/homes.h"
#include "trainer/residency/layer_cache.h"

namespace spillway::trainer {

class StreamedLayers {
 public:
  // `kind`: for people, as in "parameters".
  StreamedLayers(uint32_t slots, std::string kind) : slots_(slots), kind_(std::move(kind)) {}
  void set_folder(NvmeFolder folder) { folder_ = std::move(folder); }

  bool has(uint32_t layer) const { return devices_.contains(layer); }
  bool empty() const { return devices_.empty(); }
  // A home for bytes that the device uses, `of`: for people, as in "layer 3". Few bytes are on the host where
  // NVMe is asked for. REQUIRES: `homes` has another device than this one for `place`.
  std::shared_ptr<LayerHome> home(const std::string& of, at::Device device, int64_t bytes, Place place,
                                  const Homes& homes);
  Place place_of(int64_t bytes, Place place) const;
  void add(uint32_t layer, at::Device device, LayerBlock block, bool is_zero);
  void remove(uint32_t layer);
  // To another home, if it is not where `place` has it. On an exception it is where it was. REQUIRES: as
  // `home`.
  void move_to(uint32_t layer, Place place, const Homes& homes, const std::string& of);
  // Of files in which nothing has its home any more.
  void close_unused_files();
  LayerCache& cache_of(uint32_t layer) const { return *caches_.at(devices_.at(layer)); }
  std::vector<std::string> remarks() const;

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
  const std::string kind_;
  NvmeFolder folder_;
  std::map<uint32_t, int> devices_;                    // of a layer, their index
  std::map<int, std::shared_ptr<LayerFile>> files_;    // by device index
  std::map<int, std::unique_ptr<LayerCache>> caches_;  // the same
};

}  // namespace spillway::trainer
