// Which tensors an update of a tile needs, where its states lie, and when the update comes to it.
#include "trainer/optimizer/optimizer.h"

namespace spillway::trainer {
namespace {

// Where a parameter is updated.
at::Device device_of(const Parameters& parameters, size_t index) {
  return parameters.value(index).device();
}

}  // namespace

std::vector<at::Tensor> Optimizer::parts(const TileKey& key) {
  const OptimizerStates::Of& of = states_.of(key.parameter);
  if (of.place == Place::kNvme) return parts_in(states_.nvme().next(), of.shapes, key.length);
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < of.shapes.size(); ++i)
    if (is_tiled(of.shapes[i])) all.push_back(of.part(of.tensors[i], of.shapes[i], {key.begin, key.length}));
  return all;
}

// Value and gradient are there, on the device or at home, while the parameter is walked to.
Optimizer::Here Optimizer::here(const TileKey& key, const std::vector<at::Tensor>& states) const {
  const auto [index, begin, length] = key;
  Here here{.value = {}, .rows = {}, .gradient = {}, .states = states};
  const TiledMatrix::Run run = parameters_.run(index, begin, length);
  here.gradient = run.gradient;
  if (const Int8Weight* int8 = parameters_.int8(index)) {
    const int64_t columns = int8->codes.size(1), first = begin / columns, rows = length / columns;
    here.rows = {int8->codes.narrow(0, first, rows), int8->scales.narrow(0, first, rows)};
  } else {
    here.value = run.value;
  }
  return here;
}

// A processor reads all where it lies.
const std::vector<Span>& Optimizer::updated_at_once(size_t index) const {
  const OptimizerStates::Of& of = states_.of(index);
  return parameters_.is_updated_at_home(index) ? of.updated.spans : of.tiles;
}

std::vector<TileStream::Stop> Optimizer::schedule() const {
  std::vector<TileStream::Stop> stops;
  for (size_t i = 0; i < states_.size(); ++i) {
    const OptimizerStates::Of& of = states_.of(i);
    const at::Device device = parameters_.is_updated_at_home(i) ? at::kCPU : device_of(parameters_, i);
    for (const auto& [begin, length] : updated_at_once(i)) {
      TileStream::Stop stop{.key = {i, begin, length}, .device = device, .staged_bytes = 0};
      if (of.place != Place::kDevice && device.is_cuda()) stop.staged_bytes = tile_bytes(of.shapes, length);
      stops.push_back(stop);
    }
  }
  return stops;
}

TileStream::Home Optimizer::home() {
  const auto is_on_nvme = [this](const TileKey& key) {
    return states_.of(key.parameter).place == Place::kNvme;
  };
  return {.parts = [this](const TileKey& key) { return parts(key); },
          .is_ready = [this, is_on_nvme](
                          const TileKey& key) { return !is_on_nvme(key) || states_.nvme().has_room(); },
          .is_released = is_on_nvme,
          .release = [this](const TileKey&) { states_.nvme().write_back(); }};
}

}  // namespace spillway::trainer
