#include "trainer/plan/streams.h"

#include <algorithm>
#include <numeric>

#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices,
                           const std::vector<Parameter>& table, uint64_t nvme_least_bytes)
    : weights_at_(plan.parameters),
      gradients_at_(plan.gradients),
      weights_(plan.parameters != Place::kDevice),
      gradients_(plan.gradients != Place::kDevice),
      in_out_(shape.model.stores_in_out()),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
      nvme_least_bytes_(nvme_least_bytes),
      just_in_time_(plan.just_in_time),
      uses_(devices),
      slots_(devices) {
  if (!weights_ && !gradients_) return;
  units_ = unit_bytes(shape.numerics, table, tiles_of(plan, shape.numerics));
  const auto device_of = [&](uint32_t unit) {
    return std::min(plan.device_of(units_[unit].layer), devices - 1);
  };
  for (const UnitUse& use : training_uses(shape.model, plan)) uses_[device_of(use.unit)].push_back(use);
  std::vector<Roles> largest(devices), tiles(devices);
  std::vector<uint32_t> count(devices);
  for (uint32_t unit = 0; unit < units_.size(); ++unit) {
    const UnitBytes& bytes = units_[unit];
    Roles& most = largest[device_of(unit)];
    most = {std::max(most.weights, bytes.weights), std::max(most.gradients, bytes.gradients)};
    Roles& tile = tiles[device_of(unit)];
    tile = {std::max(tile.weights, bytes.tiled.most_weights),
            std::max(tile.gradients, bytes.tiled.most_gradients)};
    ++count[device_of(unit)];
    runs_ += bytes.tiled.runs;
    add_homes(bytes, device_of(unit));
  }
  for (uint32_t device = 0; device < devices; ++device) {
    const Roles &unit = largest[device], &tile = tiles[device];
    if (weights_)
      slots_[device].weights =
          std::min(kWeightSlots, count[device]) * unit.weights + kWeightSlots * tile.weights;
    if (gradients_)
      slots_[device].gradients =
          std::min(kGradientSlots, count[device]) * unit.gradients + kGradientSlots * tile.gradients;
    for (const Homes* homes : {&blocks_, &matrices_}) {
      buffers_.weights += buffers_of(*homes, device, weights_at_, &Roles::weights);
      buffers_.gradients += buffers_of(*homes, device, gradients_at_, &Roles::gradients);
    }
  }
}

bool LayerStreams::is_on_nvme(Place place, uint64_t bytes) const {
  return place == Place::kNvme && bytes >= nvme_least_bytes_;
}

void LayerStreams::add_home(Place place, uint64_t bytes, uint64_t Roles::* role) {
  if (place == Place::kDevice) return;
  copied_.*role += bytes;
  is_on_nvme(place, bytes) ? on_nvme_.*role += aligned(bytes, kRecordAlignment) : on_host_.*role += bytes;
}

void LayerStreams::add_homes(const UnitBytes& unit, uint32_t device) {
  first_matrix_.push_back(static_cast<uint32_t>(matrices_.size()));
  blocks_.push_back({device, {unit.weights, unit.gradients}});
  for (const UnitBytes::Tiled::Matrix& matrix : unit.tiled.matrices)
    matrices_.push_back({device, {matrix.weights, matrix.gradients}});
  add_home(weights_at_, unit.weights, &Roles::weights);
  add_home(gradients_at_, unit.gradients, &Roles::gradients);
  for (const UnitBytes::Tiled::Matrix& matrix : unit.tiled.matrices) {
    add_home(weights_at_, matrix.weights, &Roles::weights);
    add_home(gradients_at_, matrix.gradients, &Roles::gradients);
  }
}

// Each device has its own, as large as the largest of those on the disk.
uint64_t LayerStreams::buffers_of(const Homes& homes, uint32_t device, Place place,
                                  uint64_t Roles::* role) const {
  uint64_t largest = 0, count = 0;
  for (const Home& home : homes)
    if (home.device == device && is_on_nvme(place, home.bytes.*role))
      largest = std::max(largest, home.bytes.*role), ++count;
  return std::min<uint64_t>(kLayerBuffers, count) * aligned(largest, kHugePage);
}

uint64_t LayerStreams::read_bytes(Place place, const Homes& homes, std::vector<uint32_t> fetched,
                                  uint64_t Roles::* role) const {
  std::erase_if(fetched, [&](uint32_t each) { return !is_on_nvme(place, homes[each].bytes.*role); });
  uint64_t bytes = 0;
  for (const uint32_t each : copied_layers(fetched, kLayerBuffers)) bytes += homes[each].bytes.*role;
  return bytes;
}

// In the order in which their tiles come.
std::vector<uint32_t> LayerStreams::matrices_in(const std::vector<UnitUse>& uses, bool backward_alone) const {
  std::vector<uint32_t> order;
  for (const UnitUse& use : uses) {
    if (backward_alone && !use.backward) continue;
    const auto count = static_cast<uint32_t>(units_[use.unit].tiled.matrices.size());
    for (uint32_t i = 0; i < count; ++i)
      order.push_back(first_matrix_[use.unit] + (use.backward ? count - 1 - i : i));
  }
  return order;
}

LayerStreams::Copies LayerStreams::of_device(uint32_t micro_batches, const std::vector<UnitUse>& uses) const {
  Copies copies;
  const auto come = [&](uint64_t bytes, uint64_t times) {
    copies.in += times * bytes, copies.count += times;
  };
  if (weights_) {
    const std::vector<uint32_t> fetched = copied_layers(units_in(uses, false), kWeightSlots);
    for (const uint32_t unit : fetched) come(units_[unit].weights, micro_batches);
    copies.read +=
        micro_batches * (read_bytes(weights_at_, blocks_, fetched, &Roles::weights) +
                         read_bytes(weights_at_, matrices_, matrices_in(uses, false), &Roles::weights));
  }
  for (const UnitUse& use : uses) {
    const UnitBytes::Tiled& tiled = units_[use.unit].tiled;
    const bool rows = in_out_ == use.backward;
    copies.in += micro_batches * tiled.weights;
    copies.count += micro_batches * (rows ? tiled.rows : tiled.columns);
    if (!use.backward) continue;
    copies.in += (micro_batches - 1) * tiled.gradients, copies.out += micro_batches * tiled.gradients;
    copies.count += (2 * micro_batches - 1) * tiled.rows;
  }
  if (!gradients_) return copies;
  const std::vector<uint32_t> backward = units_in(uses, true), matrices = matrices_in(uses, true);
  // The first micro-batch's are sums of nothing before it.
  const std::vector<uint32_t> fetched = copied_layers(backward, kGradientSlots);
  for (const uint32_t unit : fetched) come(units_[unit].gradients, micro_batches - 1);
  copies.read += (micro_batches - 1) * (read_bytes(gradients_at_, blocks_, fetched, &Roles::gradients) +
                                        read_bytes(gradients_at_, matrices_, matrices, &Roles::gradients));
  const auto write = [&](const Home& home) {
    if (is_on_nvme(gradients_at_, home.bytes.gradients))
      copies.written += micro_batches * home.bytes.gradients;
  };
  for (const uint32_t unit : backward) {
    copies.out += micro_batches * units_[unit].gradients, copies.count += micro_batches;
    write(blocks_[unit]);
  }
  for (const uint32_t matrix : matrices) write(matrices_[matrix]);
  return copies;
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies all;
  for (const std::vector<UnitUse>& uses : uses_) {
    const Copies copies = of_device(micro_batches, uses);
    all.in += copies.in, all.out += copies.out, all.count += copies.count;
    all.read += copies.read, all.written += copies.written;
  }
  if (!just_in_time_) return all;
  all.in += copied_.gradients, all.out += copied_.weights;
  all.read += gradients_ ? read_of_all(gradients_at_, &Roles::gradients) : 0;
  all.written += on_nvme_.weights;
  all.count += (units_.size() + runs_) * ((gradients_ ? 1 : 0) + (weights_ ? 1 : 0));
  // The update of a matrix in tiles has it come in runs before the tiles of the forward.
  for (const UnitBytes& unit : units_) all.in += unit.tiled.weights;
  all.count += runs_;
  return all;
}

uint64_t LayerStreams::read_of_all(Place place, uint64_t Roles::* role) const {
  uint64_t bytes = 0;
  for (const Homes* homes : {&blocks_, &matrices_}) {
    std::vector<uint32_t> order(homes->size());
    std::iota(order.begin(), order.end(), 0);
    bytes += read_bytes(place, *homes, std::move(order), role);
  }
  return bytes;
}

LayerStreams::Copies LayerStreams::of_update() const {
  const uint64_t reads = prepares_ ? 1 : 0, now = just_in_time_ ? 0 : 1;  // before the update, and for it
  const uint64_t of_gradients = gradients_ ? 1 + reads + now : 0, of_weights = weights_ ? reads + now : 0;
  return {.in = of_gradients * copied_.gradients + of_weights * copied_.weights,
          .out = now * copied_.weights,
          .count = (units_.size() + runs_) * (of_gradients + of_weights + (weights_ ? now : 0)),
          .read = of_gradients * read_of_all(gradients_at_, &Roles::gradients) +
                  of_weights * read_of_all(weights_at_, &Roles::weights),
          .written = now * on_nvme_.weights};
}

}  // namespace spillway::trainer
