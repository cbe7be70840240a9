#include "trainer/residency/streamed_layers.h"

namespace spillway::trainer {

Place StreamedLayers::place_of(int64_t bytes, Place place) const {
  return place == Place::kNvme && uint64_t(bytes) < folder_.least_bytes ? Place::kHost : place;
}

std::shared_ptr<LayerHome> StreamedLayers::home(const std::string& of, at::Device device, int64_t bytes,
                                                Place place, const Homes& homes) {
  if (place_of(bytes, place) != Place::kNvme) return home_in_memory(bytes, device, homes.of(place, device));
  auto& file = files_[device.index()];
  if (file == nullptr) file = std::make_shared<LayerFile>(device, folder_.path, kind_);
  std::shared_ptr<LayerHome> home = file->home("the " + kind_ + " of " + of, uint64_t(bytes));
  if (const auto cache = caches_.find(device.index()); cache != caches_.end()) cache->second->set_file(file);
  return home;
}

void StreamedLayers::add(uint32_t layer, at::Device device, LayerBlock block, bool is_zero) {
  auto& cache = caches_[device.index()];
  if (cache == nullptr) cache = std::make_unique<LayerCache>(device, slots_);
  cache->add(layer, std::move(block), is_zero);
  if (const auto file = files_.find(device.index()); file != files_.end()) cache->set_file(file->second);
  devices_[layer] = device.index();
}

void StreamedLayers::remove(uint32_t layer) {
  const auto cache = caches_.find(devices_.at(layer));
  cache->second->remove(layer);
  if (cache->second->empty()) caches_.erase(cache);
  devices_.erase(layer);
  close_unused_files();
}

void StreamedLayers::move_to(uint32_t layer, Place place, const Homes& homes, const std::string& of) {
  LayerCache& cache = cache_of(layer);
  const LayerBlock& block = cache.block(layer);
  const auto bytes = int64_t(block.bytes());
  const at::Device device = block.tensor(0).device();
  const LayerHome& now = block.home();
  if (now.place() == place_of(bytes, place) && now.device() == homes.of(place, device)) return;
  cache.move_to(layer, home(of, device, bytes, place, homes));
  close_unused_files();
}

void StreamedLayers::close_unused_files() {
  std::erase_if(files_, [this](const auto& file) {
    if (!file.second->empty()) return false;
    if (const auto cache = caches_.find(file.first); cache != caches_.end()) cache->second->set_file(nullptr);
    return true;
  });
}

void StreamedLayers::follow(const std::vector<uint32_t>& uses) const {
  for_each(&LayerCache::reserve);
  for (const auto& [device, cache] : caches_) cache->follow(uses);
}

std::vector<std::string> StreamedLayers::remarks() const {
  std::vector<std::string> all;
  for (const auto& [device, file] : files_)
    for (std::string& remark : file->remarks()) all.push_back(std::move(remark));
  return all;
}

}  // namespace spillway::trainer
