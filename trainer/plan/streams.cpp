#include "trainer/plan/streams.h"

#include <algorithm>

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices,
                           const std::vector<Parameter>& table)
    : weights_on_peers_(plan.parameters == Place::kPeer),
      gradients_on_peers_(plan.gradients == Place::kPeer),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
      uses_(devices),
      count_(devices),
      slots_(devices),
      away_(devices) {
  for (uint32_t device = 0; device < devices; ++device)
    streamed_.push_back({plan.is_away(plan.parameters, device), plan.is_away(plan.gradients, device)});
  if (std::ranges::none_of(streamed_, [](const Streamed& of) { return of.weights || of.gradients; })) return;
  layers_ = layer_bytes(shape.numerics, table);
  const auto device_of = [&](uint32_t layer) { return std::min(plan.device_of(layer), devices - 1); };
  for (const LayerUse& use : training_uses(shape.model, plan)) uses_[device_of(use.layer)].push_back(use);
  std::vector<Roles> largest(devices);
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerBytes& bytes = layers_[layer];
    const uint32_t device = device_of(layer);
    Roles& most = largest[device];
    most = {std::max(most.weights, bytes.weights), std::max(most.gradients, bytes.gradients)};
    ++count_[device];
    if (streamed_[device].weights) away_[device].weights += bytes.weights;
    if (streamed_[device].gradients) away_[device].gradients += bytes.gradients;
  }
  for (uint32_t device = 0; device < devices; ++device) {
    if (streamed_[device].weights)
      slots_[device].weights = std::min(kWeightSlots, count_[device]) * largest[device].weights;
    if (streamed_[device].gradients)
      slots_[device].gradients = std::min(kGradientSlots, count_[device]) * largest[device].gradients;
  }
}

void LayerStreams::add_device(uint32_t micro_batches, uint32_t device, Copies* copies) const {
  const std::vector<LayerUse>& uses = uses_[device];
  const auto come = [&](bool from_peer, uint64_t bytes, uint64_t times) {
    (from_peer ? copies->peer_in : copies->in) += times * bytes, copies->count += times;
  };
  if (streamed_[device].weights)
    for (const uint32_t layer : copied_layers(layers_of(uses, false), kWeightSlots))
      come(weights_on_peers_, layers_[layer].weights, micro_batches);
  if (!streamed_[device].gradients) return;
  const std::vector<uint32_t> backward = layers_of(uses, true);
  // The first micro-batch's are sums of nothing before it.
  for (const uint32_t layer : copied_layers(backward, kGradientSlots))
    come(gradients_on_peers_, layers_[layer].gradients, micro_batches - 1);
  uint64_t& out = gradients_on_peers_ ? copies->peer_out : copies->out;
  for (const uint32_t layer : backward)
    out += micro_batches * layers_[layer].gradients, copies->count += micro_batches;
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies copies;
  for (uint32_t device = 0; device < uses_.size(); ++device) add_device(micro_batches, device, &copies);
  return copies;
}

LayerStreams::Copies LayerStreams::of_update() const {
  Copies copies;
  const uint64_t reads = prepares_ ? 1 : 0;  // of both, before the update
  for (uint32_t device = 0; device < away_.size(); ++device) {
    const uint64_t of_gradients = streamed_[device].gradients ? 2 + reads : 0,
                   of_weights = streamed_[device].weights ? 1 + reads : 0;
    (gradients_on_peers_ ? copies.peer_in : copies.in) += of_gradients * away_[device].gradients;
    (weights_on_peers_ ? copies.peer_in : copies.in) += of_weights * away_[device].weights;
    (weights_on_peers_ ? copies.peer_out : copies.out) += away_[device].weights;
    copies.count += count_[device] * (of_gradients + of_weights + (streamed_[device].weights ? 1 : 0));
  }
  return copies;
}

}  // namespace spillway::trainer
