#include "trainer/plan/streams.h"

#include <algorithm>

#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices,
                           const std::vector<Parameter>& table)
    : weights_(plan.parameters == Place::kHost),
      gradients_(plan.gradients == Place::kHost),
      in_out_(shape.model.stores_in_out()),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
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
    if (weights_) on_host_.weights += bytes.weights + bytes.tiled.weights;
    if (gradients_) on_host_.gradients += bytes.gradients + bytes.tiled.gradients;
    runs_ += bytes.tiled.runs;
  }
  for (uint32_t device = 0; device < devices; ++device) {
    const Roles &unit = largest[device], &tile = tiles[device];
    if (weights_)
      slots_[device].weights =
          std::min(kWeightSlots, count[device]) * unit.weights + kWeightSlots * tile.weights;
    if (gradients_)
      slots_[device].gradients =
          std::min(kGradientSlots, count[device]) * unit.gradients + kGradientSlots * tile.gradients;
  }
}

LayerStreams::Copies LayerStreams::of_device(uint32_t micro_batches, const std::vector<UnitUse>& uses) const {
  Copies copies;
  const auto come = [&](uint64_t bytes, uint64_t times) {
    copies.in += times * bytes, copies.count += times;
  };
  if (weights_)
    for (const uint32_t unit : copied_layers(units_in(uses, false), kWeightSlots))
      come(units_[unit].weights, micro_batches);
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
  const std::vector<uint32_t> backward = units_in(uses, true);
  // The first micro-batch's are sums of nothing before it.
  for (const uint32_t unit : copied_layers(backward, kGradientSlots))
    come(units_[unit].gradients, micro_batches - 1);
  for (const uint32_t unit : backward)
    copies.out += micro_batches * units_[unit].gradients, copies.count += micro_batches;
  return copies;
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies all;
  for (const std::vector<UnitUse>& uses : uses_) {
    const Copies copies = of_device(micro_batches, uses);
    all.in += copies.in, all.out += copies.out, all.count += copies.count;
  }
  return all;
}

LayerStreams::Copies LayerStreams::of_update() const {
  const uint64_t reads = prepares_ ? 1 : 0;  // of both, before the update
  const uint64_t of_gradients = gradients_ ? 2 + reads : 0, of_weights = weights_ ? 1 + reads : 0;
  return {.in = of_gradients * on_host_.gradients + of_weights * on_host_.weights,
          .out = on_host_.weights,
          .count = (units_.size() + runs_) * (of_gradients + of_weights + (weights_ ? 1 : 0))};
}

}  // namespace spillway::trainer
