#include "trainer/plan/streams.h"

#include <algorithm>
#include <numeric>

#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices, const KeptParameters& kept,
                           uint64_t nvme_least_bytes)
    : weights_at_(plan.parameters),
      gradients_at_(plan.gradients),
      in_out_(shape.model.stores_in_out()),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
      nvme_least_bytes_(nvme_least_bytes),
      just_in_time_(plan.just_in_time),
      updates_at_home_(updates_on_host(plan, shape)),
      measured_at_leaving_(shape.ranks == 1 && tiles_of(plan, shape.numerics) == 1),
      replaced_(measured_at_leaving_ && shape.numerics.has_master_weights()),
      uses_(devices),
      slots_(devices),
      on_peers_(devices) {
  for (uint32_t device = 0; device < devices; ++device)
    streamed_.push_back({plan.is_away(plan.parameters, device), plan.is_away(plan.gradients, device)});
  if (std::ranges::none_of(streamed_, [](const Streamed& of) { return of.weights || of.gradients; })) return;
  const uint32_t tiles = tiles_of(plan, shape.numerics);
  units_ = unit_bytes(shape.numerics, kept.weights(), tiles);
  const std::vector<UnitBytes> sums = unit_bytes(shape.numerics, kept.gradients(), tiles);
  for (size_t i = 0; i < units_.size(); ++i) units_[i].gradients = sums[i].gradients;
  const auto device_of = [&](uint32_t unit) {
    return std::min(plan.device_of(units_[unit].layer), devices - 1);
  };
  for (const UnitUse& use : training_uses(shape.model, plan)) uses_[device_of(use.unit)].push_back(use);
  for (uint32_t unit = 0; unit < units_.size(); ++unit) add_homes(units_[unit], device_of(unit));
  add_slots(devices);
}

bool LayerStreams::is_on_nvme(Place place, uint64_t bytes) const {
  return place == Place::kNvme && bytes >= nvme_least_bytes_;
}

void LayerStreams::add_home(Place place, uint32_t device, uint64_t bytes, uint64_t Roles::* role) {
  copied_.*role += bytes;
  if (place == Place::kPeer)
    on_peers_[device].*role += bytes;
  else
    is_on_nvme(place, bytes) ? on_nvme_.*role += aligned(bytes, kRecordAlignment) : on_host_.*role += bytes;
}

void LayerStreams::add_homes(const UnitBytes& unit, uint32_t device) {
  first_matrix_.push_back(static_cast<uint32_t>(matrices_.size()));
  blocks_.push_back({device, {unit.weights, unit.gradients}});
  for (const UnitBytes::Tiled::Matrix& matrix : unit.tiled.matrices)
    matrices_.push_back({device, {matrix.weights, matrix.gradients}});
  const auto add = [&](Place place, uint64_t block, uint64_t UnitBytes::Tiled::Matrix::* of,
                       uint64_t Roles::* role) {
    count_.*role += 1 + unit.tiled.runs;
    add_home(place, device, block, role);
    for (const UnitBytes::Tiled::Matrix& matrix : unit.tiled.matrices)
      add_home(place, device, matrix.*of, role);
  };
  using Matrix = UnitBytes::Tiled::Matrix;
  if (streamed_[device].weights) add(weights_at_, unit.weights, &Matrix::weights, &Roles::weights);
  if (streamed_[device].gradients) add(gradients_at_, unit.gradients, &Matrix::gradients, &Roles::gradients);
  tiled_weights_ += unit.tiled.weights, runs_ += unit.tiled.runs;
}

void LayerStreams::add_slots(uint32_t devices) {
  std::vector<Roles> largest(devices), tiles(devices);
  std::vector<uint32_t> count(devices);  // of units
  for (uint32_t unit = 0; unit < units_.size(); ++unit) {
    const UnitBytes& bytes = units_[unit];
    const uint32_t device = blocks_[unit].device;
    Roles &most = largest[device], &tile = tiles[device];
    most = {std::max(most.weights, bytes.weights), std::max(most.gradients, bytes.gradients)};
    tile = {std::max(tile.weights, bytes.tiled.most_weights),
            std::max(tile.gradients, bytes.tiled.most_gradients)};
    ++count[device];
  }
  for (uint32_t device = 0; device < devices; ++device) {
    const Roles &unit = largest[device], &tile = tiles[device];
    if (streamed_[device].weights)
      slots_[device].weights =
          std::min(kWeightSlots, count[device]) * unit.weights + kTileSlots * tile.weights;
    if (streamed_[device].gradients)
      slots_[device].gradients =
          std::min(kGradientSlots, count[device]) * unit.gradients + kGradientSlots * tile.gradients;
    for (const HomeList* homes : {&blocks_, &matrices_}) {
      buffers_.weights += buffers_of(*homes, device, weights_at_, &Roles::weights);
      buffers_.gradients += buffers_of(*homes, device, gradients_at_, &Roles::gradients);
    }
  }
}

// Each device has its own, as large as the largest of those on the disk.
uint64_t LayerStreams::buffers_of(const HomeList& homes, uint32_t device, Place place,
                                  uint64_t Roles::* role) const {
  uint64_t largest = 0, count = 0;
  for (const Home& home : homes)
    if (home.device == device && is_on_nvme(place, home.bytes.*role))
      largest = std::max(largest, home.bytes.*role), ++count;
  return std::min<uint64_t>(kLayerBuffers, count) * aligned(largest, kHugePage);
}

uint64_t LayerStreams::read_bytes(Place place, const HomeList& homes, std::vector<uint32_t> fetched,
                                  uint64_t Roles::* role) const {
  if (place != Place::kNvme) return 0;
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

// Weights in each use, and gradients around each backward but before the first micro-batch's.
void LayerStreams::add_tiles(uint32_t micro_batches, const std::vector<UnitUse>& uses, Copies* copies) const {
  for (const UnitUse& use : uses) {
    const UnitBytes::Tiled& tiled = units_[use.unit].tiled;
    const bool rows = in_out_ == use.backward;
    copies->in += micro_batches * tiled.weights;
    copies->count += micro_batches * (rows ? tiled.rows : tiled.columns);
    if (!use.backward) continue;
    copies->in += (micro_batches - 1) * tiled.gradients, copies->out += micro_batches * tiled.gradients;
    copies->count += (2 * micro_batches - 1) * tiled.rows;
  }
  const std::vector<uint32_t> all = matrices_in(uses, false), backward = matrices_in(uses, true);
  copies->read += micro_batches * read_bytes(weights_at_, matrices_, all, &Roles::weights) +
                  (micro_batches - 1) * read_bytes(gradients_at_, matrices_, backward, &Roles::gradients);
  for (const uint32_t matrix : backward)
    if (const uint64_t bytes = matrices_[matrix].bytes.gradients; is_on_nvme(gradients_at_, bytes))
      copies->written += micro_batches * bytes;
}

void LayerStreams::add_device(uint32_t micro_batches, uint32_t device, Copies* copies) const {
  const std::vector<UnitUse>& uses = uses_[device];
  const auto come = [&](Place from, uint64_t bytes, uint64_t times) {
    copies->in_from(from) += times * bytes, copies->count += times;
  };
  add_tiles(micro_batches, uses, copies);
  if (streamed_[device].weights) {
    const std::vector<uint32_t> fetched = copied_layers(units_in(uses, false), kWeightSlots);
    // In their order, and then back: the first way back ends the forward.
    const auto forward = std::ranges::is_sorted_until(fetched);
    const bool are_replaced = just_in_time_ && replaced_ && !updates_at_home_;  // in the first forward
    const std::vector<uint32_t> made(fetched.begin(), are_replaced ? forward : fetched.begin());
    for (const uint32_t unit : fetched) come(weights_at_, units_[unit].weights, micro_batches);
    for (const uint32_t unit : made) copies->in_from(weights_at_) -= units_[unit].weights, --copies->count;
    copies->read += micro_batches * read_bytes(weights_at_, blocks_, fetched, &Roles::weights) -
                    read_bytes(weights_at_, blocks_, made, &Roles::weights);
  }
  if (!streamed_[device].gradients) return;
  const std::vector<uint32_t> backward = units_in(uses, true);
  // The first micro-batch's are sums of nothing before it.
  const std::vector<uint32_t> fetched = copied_layers(backward, kGradientSlots);
  for (const uint32_t unit : fetched) come(gradients_at_, units_[unit].gradients, micro_batches - 1);
  copies->read += (micro_batches - 1) * read_bytes(gradients_at_, blocks_, fetched, &Roles::gradients);
  for (const uint32_t unit : backward) {
    const uint64_t bytes = units_[unit].gradients;
    copies->out_to(gradients_at_) += micro_batches * bytes, copies->count += micro_batches;
    if (is_on_nvme(gradients_at_, bytes)) copies->written += micro_batches * bytes;
  }
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies all;
  for (uint32_t device = 0; device < uses_.size(); ++device) add_device(micro_batches, device, &all);
  if (!just_in_time_ || updates_at_home_) return all;
  all.in_from(gradients_at_) += copied_.gradients, all.out_to(weights_at_) += copied_.weights;
  all.read += read_of_all(gradients_at_, &Roles::gradients);
  all.written += on_nvme_.weights;
  all.count += count_.gradients + count_.weights;
  // The update of a matrix in tiles has it come in runs before the tiles of the forward.
  all.in += tiled_weights_, all.count += runs_;
  return all;
}

uint64_t LayerStreams::read_of_all(Place place, uint64_t Roles::* role) const {
  uint64_t bytes = 0;
  for (const HomeList* homes : {&blocks_, &matrices_}) {
    std::vector<uint32_t> order(homes->size());
    std::iota(order.begin(), order.end(), 0);
    bytes += read_bytes(place, *homes, std::move(order), role);
  }
  return bytes;
}

LayerStreams::Copies LayerStreams::of_update() const {
  const uint64_t reads = prepares_ ? 1 : 0;                        // before the update
  const uint64_t now = just_in_time_ || updates_at_home_ ? 0 : 1;  // and for it
  const uint64_t for_norm = measured_at_leaving_ ? 0 : 1;
  const uint64_t of_gradients = for_norm + reads + now, of_weights = reads + (replaced_ ? 0 : now);
  Copies copies;
  copies.in_from(gradients_at_) += of_gradients * copied_.gradients;
  copies.in_from(weights_at_) += of_weights * copied_.weights;
  copies.out_to(weights_at_) += now * copied_.weights;
  copies.count = of_gradients * count_.gradients + (of_weights + now) * count_.weights;
  copies.read = of_gradients * read_of_all(gradients_at_, &Roles::gradients) +
                of_weights * read_of_all(weights_at_, &Roles::weights);
  copies.written = now * on_nvme_.weights;
  return copies;
}

}  // namespace spillway::trainer
