#include "trainer/plan/streams.h"

#include <algorithm>

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices,
                           const std::vector<Parameter>& table)
    : weights_(plan.parameters == Place::kHost),
      gradients_(plan.gradients == Place::kHost),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
      just_in_time_(plan.just_in_time),
      uses_(devices),
      slots_(devices) {
  if (!weights_ && !gradients_) return;
  layers_ = layer_bytes(shape.numerics, table);
  const auto device_of = [&](uint32_t layer) { return std::min(plan.device_of(layer), devices - 1); };
  for (const LayerUse& use : training_uses(shape.model, plan)) uses_[device_of(use.layer)].push_back(use);
  std::vector<Roles> largest(devices);
  std::vector<uint32_t> count(devices);
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerBytes& bytes = layers_[layer];
    Roles& most = largest[device_of(layer)];
    most = {std::max(most.weights, bytes.weights), std::max(most.gradients, bytes.gradients)};
    ++count[device_of(layer)];
    if (weights_) on_host_.weights += bytes.weights;
    if (gradients_) on_host_.gradients += bytes.gradients;
  }
  for (uint32_t device = 0; device < devices; ++device) {
    if (weights_) slots_[device].weights = std::min(kWeightSlots, count[device]) * largest[device].weights;
    if (gradients_)
      slots_[device].gradients = std::min(kGradientSlots, count[device]) * largest[device].gradients;
  }
}

LayerStreams::Copies LayerStreams::of_device(uint32_t micro_batches,
                                             const std::vector<LayerUse>& uses) const {
  Copies copies;
  const auto come = [&](uint64_t bytes, uint64_t times) {
    copies.in += times * bytes, copies.count += times;
  };
  if (weights_)
    for (const uint32_t layer : copied_layers(layers_of(uses, false), kWeightSlots))
      come(layers_[layer].weights, micro_batches);
  if (!gradients_) return copies;
  const std::vector<uint32_t> backward = layers_of(uses, true);
  // The first micro-batch's are sums of nothing before it.
  for (const uint32_t layer : copied_layers(backward, kGradientSlots))
    come(layers_[layer].gradients, micro_batches - 1);
  for (const uint32_t layer : backward)
    copies.out += micro_batches * layers_[layer].gradients, copies.count += micro_batches;
  return copies;
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies all;
  for (const std::vector<LayerUse>& uses : uses_) {
    const Copies copies = of_device(micro_batches, uses);
    all.in += copies.in, all.out += copies.out, all.count += copies.count;
  }
  if (!just_in_time_) return all;
  all.in += on_host_.gradients, all.out += on_host_.weights;
  all.count += layers_.size() * ((gradients_ ? 1 : 0) + (weights_ ? 1 : 0));
  return all;
}

LayerStreams::Copies LayerStreams::of_update() const {
  const uint64_t reads = prepares_ ? 1 : 0, now = just_in_time_ ? 0 : 1;  // before the update, and for it
  const uint64_t of_gradients = gradients_ ? 1 + reads + now : 0, of_weights = weights_ ? reads + now : 0;
  return {.in = of_gradients * on_host_.gradients + of_weights * on_host_.weights,
          .out = now * on_host_.weights,
          .count = layers_.size() * (of_gradients + of_weights + (weights_ ? now : 0))};
}

}  // namespace spillway::trainer
