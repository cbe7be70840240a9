#include "trainer/optimizer/states/optimizer_states.h"

#include <algorithm>

#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

at::Tensor view_at(const at::Tensor& bytes, uint64_t offset, at::ScalarType type, int64_t numbers) {
  return bytes.narrow(0, int64_t(offset), numbers * int64_t(c10::elementSize(type))).view(type);
}

std::vector<at::Tensor> parts_in(const at::Tensor& bytes, const std::vector<StateTensor>& states,
                                 int64_t length) {
  std::vector<at::Tensor> parts;
  uint64_t offset = 0;
  for (const StateTensor& state : states) {
    if (!is_tiled(state)) continue;
    parts.push_back(view_at(bytes, offset, type_of(state), entries_of(state, length)));
    offset += aligned(part_bytes(state, length), kPartAlignment);
  }
  return parts;
}

OptimizerStates::OptimizerStates(const Parameters& parameters, const Numerics& numerics, Place place,
                                 const Homes& homes, const InitialValues& initial, NvmeFolder folder,
                                 const std::vector<std::vector<Span>>& updated)
    : parameters_(parameters),
      numerics_(numerics),
      least_on_nvme_(folder.least_bytes),
      of_(parameters.size()),
      nvme_(std::move(folder.path)) {
  std::vector<size_t> for_nvme;
  for (size_t i = 0; i < of_.size(); ++i) {
    of_[i].updated = {parameters.value(i).sizes().vec(), {{0, parameters.value(i).numel()}}};
    if (!updated.empty()) of_[i].updated.spans = updated[i];
    of_[i].shapes = of_[i].updated.kept(numerics);
    const Where at = where(i, place, homes);
    of_[i].place = at.place, of_[i].home = at.home;
    set_tiles(i);
    if (of_[i].place == Place::kNvme) for_nvme.push_back(i);
  }
  reserve_records(for_nvme);
  for (size_t i = 0; i < of_.size(); ++i)
    place_initially(i, numerics.has_master_weights() ? initial[i] : at::Tensor());
  prepare();
}

OptimizerStates::Where OptimizerStates::where(size_t index, Place place, const Homes& homes) const {
  const Of& of = of_[index];
  if (place == Place::kNvme && !lies_on_nvme(of.shapes, of.updated.elements(), least_on_nvme_))
    place = Place::kHost;
  const at::Device device = parameters_.value(index).device(), home = homes.of(place, device);
  if (home == device && place == Place::kPeer) place = Place::kDevice;  // it has none
  return {place, home};
}

void OptimizerStates::set_tiles(size_t index) {
  Of& of = of_[index];
  of.tiles = tiles_of(numerics_, of.updated, of.place != Place::kDevice);
  of.tile = 0;
  for (const Span& tile : of.tiles) of.tile = std::max(of.tile, tile.length);
}

// Uninitialised; not defined where it will be in records.
at::Tensor OptimizerStates::made(size_t index, size_t state, const Where& where) const {
  const StateTensor& shape = of_[index].shapes[state];
  const at::Device device = parameters_.value(index).device();
  if (where.place == Place::kNvme && is_tiled(shape)) return {};
  if (where.place == Place::kDevice) return at::empty(shape.sizes, at::device(device).dtype(type_of(shape)));
  return home_tensor(shape.sizes, type_of(shape), device, where.home);
}

void OptimizerStates::place_initially(size_t index, const at::Tensor& initial) {
  Of& of = of_[index];
  for (size_t i = 0; i < of.shapes.size(); ++i) {
    of.tensors.push_back(made(index, i, {of.place, of.home}));
    if (!of.tensors[i].defined()) continue;
    if (of.shapes[i].name == "master")
      copy_now(of.tensors[i].view({-1}), initial.view({-1}).narrow(0, of.first(), of.updated.elements()));
    else
      zero_now(of.tensors[i]);
  }
  if (of.place != Place::kNvme) return;
  to_records(index, [&](size_t state, const Span& tile, const at::Tensor& to) {
    if (of.shapes[state].name == "master")
      to.copy_(initial.view({-1}).narrow(0, tile.begin, tile.length));
    else
      to.zero_();
  });
}

// Room for all of them, before the first byte is written; and buffers, for these and for those that are
// there.
void OptimizerStates::reserve_records(const std::vector<size_t>& indices) {
  if (indices.empty()) return;
  uint64_t bytes = 0, largest = 0, count = 0;
  for (const size_t index : indices) {
    for (const Span& tile : tiles_elsewhere(index)) {
      const uint64_t record = record_bytes(of_[index].shapes, tile.length);
      bytes += record, ++count;
      largest = std::max(largest, record);
    }
  }
  for (size_t i = 0; i < of_.size(); ++i)
    if (!of_[i].records.empty()) {
      for (const Record& record : of_[i].records) largest = std::max<uint64_t>(largest, record.piece.bytes);
      count += of_[i].records.size();
    }
  nvme_.reserve(bytes);
  nvme_.make_buffers(largest, buffered_records(largest, count), parameters_.value(indices[0]).device());
}

std::vector<Record> OptimizerStates::records_of(size_t index) {
  const Of& of = of_[index];
  std::vector<Record> records;
  for (const auto& [begin, length] : tiles_elsewhere(index)) {
    records.push_back({.name = "the optimizer's states of elements " + std::to_string(begin) + " to " +
                               std::to_string(begin + length - 1) + " of " + parameters_.name(index),
                       .piece = nvme_.piece(record_bytes(of.shapes, length)),
                       .kept = {}});
  }
  return records;
}

void OptimizerStates::to_records(size_t index, const Source& source) {
  Of& of = of_[index];
  const std::vector<Span> tiles = tiles_elsewhere(index);
  std::vector<Record> records = records_of(index);
  nvme_.write_all(records, [&](size_t i, const at::Tensor& bytes) {
    const std::vector<at::Tensor> parts = parts_in(bytes, of.shapes, tiles[i].length);
    for (size_t state = 0, part = 0; state < of.shapes.size(); ++state)
      if (is_tiled(of.shapes[state])) source(state, tiles[i], parts[part++]);
  });
  of.records = std::move(records);
}

// Into tensors of all that is kept, of which those that are not defined are passed over.
void OptimizerStates::read_tile(const Of& of, size_t tile, const at::Tensor& bytes,
                                const std::vector<at::Tensor>& to) {
  const std::vector<at::Tensor> parts = parts_in(bytes, of.shapes, of.tiles[tile].length);
  for (size_t state = 0, part = 0; state < of.shapes.size(); ++state) {
    if (!is_tiled(of.shapes[state])) continue;
    if (to[state].defined()) of.part(to[state], of.shapes[state], of.tiles[tile]).copy_(parts[part]);
    ++part;
  }
}

void OptimizerStates::move(size_t index, const Where& to) {
  Of& of = of_[index];
  const Place place = to.place;
  if (of.place != Place::kNvme && place != Place::kNvme && of.home == to.home) {  // of another name at most
    of.place = place;
    return set_tiles(index);
  }
  if (of.place == place && of.home == to.home) return;
  std::vector<at::Tensor> moved;
  for (size_t i = 0; i < of.shapes.size(); ++i) {
    moved.push_back(made(index, i, to));
    if (moved[i].defined() && of.tensors[i].defined()) copy_now(moved[i], of.tensors[i]);
  }
  if (of.place == Place::kNvme) {
    nvme_.read_all(of.records, [&](size_t i, const at::Tensor& bytes) { read_tile(of, i, bytes, moved); });
    of.records.clear();
  }
  if (place == Place::kNvme)
    to_records(index, [&](size_t state, const Span& tile, const at::Tensor& part) {
      part.copy_(of.part(of.tensors[state], of.shapes[state], tile));
    });
  of.tensors = std::move(moved);
  of.place = place, of.home = to.home;
  set_tiles(index);
}

void OptimizerStates::move_to(Place place, const Homes& homes) {
  std::vector<size_t> for_nvme;
  for (size_t i = 0; i < of_.size(); ++i)
    if (where(i, place, homes).place == Place::kNvme && of_[i].place != Place::kNvme) for_nvme.push_back(i);
  reserve_records(for_nvme);
  for (size_t i = 0; i < of_.size(); ++i) move(i, where(i, place, homes));
  prepare();
}

void OptimizerStates::relocate(size_t first, size_t count, at::Device device) {
  for (size_t i = first; i < first + count; ++i) {
    if (of_[i].place != Place::kDevice) continue;
    std::vector<at::Tensor> moved;
    moved.reserve(of_[i].tensors.size());
    for (const at::Tensor& tensor : of_[i].tensors) moved.push_back(tensor.to(device));
    of_[i].tensors = std::move(moved);
    of_[i].home = device;
  }
}

void OptimizerStates::prepare() {
  std::vector<Record*> cycle;
  uint64_t largest = 0;
  at::Device device = at::kCPU;
  for (size_t i = 0; i < of_.size(); ++i)
    for (Record& record : of_[i].records) {
      if (cycle.empty()) device = parameters_.value(i).device();
      cycle.push_back(&record);
      largest = std::max<uint64_t>(largest, record.piece.bytes);
    }
  nvme_in_use_ = !cycle.empty();
  if (!nvme_in_use_) return nvme_.close();
  nvme_.make_buffers(largest, buffered_records(largest, cycle.size()), device);
  nvme_.set_cycle(std::move(cycle));
}

std::vector<at::Tensor> OptimizerStates::read(size_t index) {
  Of& of = of_[index];
  std::vector<at::Tensor> all = of.tensors;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].defined())
      all[i] = at::empty(of.shapes[i].sizes, at::TensorOptions().dtype(type_of(of.shapes[i])));
  std::vector<at::Tensor> missing(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    if (!of.tensors[i].defined()) missing[i] = all[i];
  if (!of.records.empty())
    nvme_.read_all(of.records, [&](size_t i, const at::Tensor& bytes) { read_tile(of, i, bytes, missing); });
  return all;
}

at::Tensor OptimizerStates::read(size_t index, size_t state) {
  Of& of = of_[index];
  if (of.tensors[state].defined()) return of.tensors[state];
  std::vector<at::Tensor> one(of.tensors.size());
  one[state] = at::empty(of.shapes[state].sizes, at::TensorOptions().dtype(type_of(of.shapes[state])));
  nvme_.read_all(of.records, [&](size_t i, const at::Tensor& bytes) { read_tile(of, i, bytes, one); });
  return one[state];
}

void OptimizerStates::write(size_t index, const std::vector<at::Tensor>& values) {
  Of& of = of_[index];
  const Span all{of.first(), of.updated.elements()};
  for (size_t i = 0; i < values.size(); ++i) {
    if (!of.tensors[i].defined()) continue;
    if (is_tiled(of.shapes[i]))
      copy_now(of.tensors[i].view({-1}), part_of(values[i], of.shapes[i], all.begin, all.length));
    else
      copy_now(of.tensors[i], values[i]);
  }
  if (of.records.empty()) return;
  nvme_.write_all(of.records, [&](size_t i, const at::Tensor& bytes) {
    const auto [begin, length] = of.tiles[i];
    const std::vector<at::Tensor> parts = parts_in(bytes, of.shapes, length);
    for (size_t state = 0, part = 0; state < of.shapes.size(); ++state)
      if (is_tiled(of.shapes[state]))
        parts[part++].copy_(part_of(values[state], of.shapes[state], begin, length));
  });
}

}  // namespace spillway::trainer
