// Which tensors an update of a tile needs, where they lie, and when the update comes to it.
#include "trainer/optimizer/optimizer.h"

namespace spillway::trainer {
namespace {

// Where a parameter is updated.
at::Device device_of(const Parameters& parameters, size_t index) {
  return parameters.value(index).device();
}

}  // namespace

// In the order of here(): the value, or codes and scales; the gradient; the states that are read in tiles.
std::vector<TilePart> Optimizer::value_parts(size_t index, int64_t begin, int64_t length) const {
  const at::Tensor& value = parameters_.value(index);
  const at::Tensor gradient = parameters_.gradient(index).view({-1}).narrow(0, begin, length);
  // Nothing needs a gradient again.
  const TilePart last{.home = gradient, .is_read = true, .is_written = false};
  if (const Int8Weight* int8 = parameters_.int8(index)) {
    const int64_t columns = int8->codes.size(1), first = begin / columns, rows = length / columns;
    return {
        {.home = int8->codes.narrow(0, first, rows)}, {.home = int8->scales.narrow(0, first, rows)}, last};
  }
  const bool from_master = train_.numerics.has_master_weights();
  return {{.home = value.detach().view({-1}).narrow(0, begin, length), .is_read = !from_master}, last};
}

std::vector<TilePart> Optimizer::parts(const TileKey& key) {
  const OptimizerStates::Of& of = states_.of(key.parameter);
  std::vector<TilePart> all = value_parts(key.parameter, key.begin, key.length);
  if (of.place == Place::kNvme) {
    for (at::Tensor& part : parts_in(states_.nvme().next(), of.shapes, key.length))
      all.push_back({.home = std::move(part)});
    return all;
  }
  for (size_t i = 0; i < of.shapes.size(); ++i)
    if (is_tiled(of.shapes[i]))
      all.push_back({.home = part_of(of.tensors[i], of.shapes[i], key.begin, key.length)});
  return all;
}

Optimizer::Here Optimizer::here(const TileKey& key, const std::vector<at::Tensor>& parts) const {
  Here here;
  auto part = parts.begin();
  if (parameters_.int8(key.parameter)) {
    here.rows.codes = *part++;
    here.rows.scales = *part++;
  } else {
    here.value = *part++;
  }
  here.gradient = *part++;
  here.states.assign(part, parts.end());
  return here;
}

std::vector<TileStream::Stop> Optimizer::schedule() const {
  std::vector<TileStream::Stop> stops;
  for (size_t i = 0; i < states_.size(); ++i) {
    const OptimizerStates::Of& of = states_.of(i);
    const at::Device device = device_of(parameters_, i);
    const int64_t elements = parameters_.value(i).numel();
    for (int64_t begin = 0; begin < elements; begin += of.tile) {
      const int64_t length = std::min(of.tile, elements - begin);
      TileStream::Stop stop{.key = {i, begin, length}, .device = device, .staged_bytes = 0};
      if (of.place != Place::kDevice && device.is_cuda()) stop.staged_bytes = tile_bytes(of.shapes, length);
      for (const TilePart& part : value_parts(i, begin, length))
        if (part.home.device() != device) stop.staged_bytes += aligned(part.home.nbytes(), kPartAlignment);
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
