#include "trainer/plan/streams.h"

#include <algorithm>
#include <numeric>

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices,
                           const std::vector<Parameter>& table, uint64_t nvme_least_bytes)
    : weights_at_(plan.parameters),
      gradients_at_(plan.gradients),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
      nvme_least_bytes_(nvme_least_bytes),
      just_in_time_(plan.just_in_time),
      uses_(devices),
      slots_(devices),
      on_peers_(devices) {
  for (uint32_t device = 0; device < devices; ++device)
    streamed_.push_back({plan.is_away(plan.parameters, device), plan.is_away(plan.gradients, device)});
  if (std::ranges::none_of(streamed_, [](const Streamed& of) { return of.weights || of.gradients; })) return;
  layers_ = layer_bytes(shape.numerics, table);
  const auto device_of = [&](uint32_t layer) { return std::min(plan.device_of(layer), devices - 1); };
  for (const LayerUse& use : training_uses(shape.model, plan)) uses_[device_of(use.layer)].push_back(use);
  std::vector<Roles> largest(devices);
  std::vector<uint32_t> count(devices);  // of layers
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerBytes& bytes = layers_[layer];
    const uint32_t device = device_of(layer);
    Roles& most = largest[device];
    most = {std::max(most.weights, bytes.weights), std::max(most.gradients, bytes.gradients)};
    ++count[device];
    if (streamed_[device].weights) add_home(weights_at_, device, bytes.weights, &Roles::weights);
    if (streamed_[device].gradients) add_home(gradients_at_, device, bytes.gradients, &Roles::gradients);
  }
  for (uint32_t device = 0; device < devices; ++device) {
    if (streamed_[device].weights)
      slots_[device].weights = std::min(kWeightSlots, count[device]) * largest[device].weights;
    if (streamed_[device].gradients)
      slots_[device].gradients = std::min(kGradientSlots, count[device]) * largest[device].gradients;
  }
  count_buffers(plan, devices);
}

bool LayerStreams::is_on_nvme(Place place, uint64_t bytes) const {
  return place == Place::kNvme && bytes >= nvme_least_bytes_;
}

void LayerStreams::add_home(Place place, uint32_t device, uint64_t bytes, uint64_t Roles::* role) {
  copied_.*role += bytes, ++(count_.*role);
  if (place == Place::kPeer)
    on_peers_[device].*role += bytes;
  else
    is_on_nvme(place, bytes) ? on_nvme_.*role += aligned(bytes, kRecordAlignment) : on_host_.*role += bytes;
}

// Each device has its own, as large as the largest of its layers on the disk.
void LayerStreams::count_buffers(const Plan& plan, uint32_t devices) {
  const auto buffers = [&](uint32_t device, Place place, uint64_t LayerBytes::* kind) {
    uint64_t largest = 0, count = 0;
    for (uint32_t layer = 0; layer < layers_.size(); ++layer)
      if (std::min(plan.device_of(layer), devices - 1) == device && is_on_nvme(place, layers_[layer].*kind))
        largest = std::max(largest, layers_[layer].*kind), ++count;
    return std::min<uint64_t>(kLayerBuffers, count) * aligned(largest, kHugePage);
  };
  for (uint32_t device = 0; device < devices; ++device) {
    buffers_.weights += buffers(device, weights_at_, &LayerBytes::weights);
    buffers_.gradients += buffers(device, gradients_at_, &LayerBytes::gradients);
  }
}

uint64_t LayerStreams::read_bytes(Place place, std::vector<uint32_t> fetched,
                                  uint64_t LayerBytes::* kind) const {
  std::erase_if(fetched, [&](uint32_t layer) { return !is_on_nvme(place, layers_[layer].*kind); });
  uint64_t bytes = 0;
  for (const uint32_t layer : copied_layers(fetched, kLayerBuffers)) bytes += layers_[layer].*kind;
  return bytes;
}

void LayerStreams::add_device(uint32_t micro_batches, uint32_t device, Copies* copies) const {
  const std::vector<LayerUse>& uses = uses_[device];
  const auto come = [&](Place from, uint64_t bytes, uint64_t times) {
    copies->in_from(from) += times * bytes, copies->count += times;
  };
  if (streamed_[device].weights) {
    const std::vector<uint32_t> fetched = copied_layers(layers_of(uses, false), kWeightSlots);
    for (const uint32_t layer : fetched) come(weights_at_, layers_[layer].weights, micro_batches);
    copies->read += micro_batches * read_bytes(weights_at_, fetched, &LayerBytes::weights);
  }
  if (!streamed_[device].gradients) return;
  const std::vector<uint32_t> backward = layers_of(uses, true);
  // The first micro-batch's are sums of nothing before it.
  const std::vector<uint32_t> fetched = copied_layers(backward, kGradientSlots);
  for (const uint32_t layer : fetched) come(gradients_at_, layers_[layer].gradients, micro_batches - 1);
  copies->read += (micro_batches - 1) * read_bytes(gradients_at_, fetched, &LayerBytes::gradients);
  for (const uint32_t layer : backward) {
    const uint64_t bytes = layers_[layer].gradients;
    copies->out_to(gradients_at_) += micro_batches * bytes, copies->count += micro_batches;
    if (is_on_nvme(gradients_at_, bytes)) copies->written += micro_batches * bytes;
  }
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies all;
  for (uint32_t device = 0; device < uses_.size(); ++device) add_device(micro_batches, device, &all);
  if (!just_in_time_) return all;
  all.in_from(gradients_at_) += copied_.gradients, all.out_to(weights_at_) += copied_.weights;
  all.read += read_of_all(gradients_at_, &LayerBytes::gradients);
  all.written += on_nvme_.weights;
  all.count += count_.gradients + count_.weights;
  return all;
}

uint64_t LayerStreams::read_of_all(Place place, uint64_t LayerBytes::* kind) const {
  std::vector<uint32_t> order(layers_.size());
  std::iota(order.begin(), order.end(), 0);
  return read_bytes(place, std::move(order), kind);
}

LayerStreams::Copies LayerStreams::of_update() const {
  const uint64_t reads = prepares_ ? 1 : 0, now = just_in_time_ ? 0 : 1;  // before the update, and for it
  const uint64_t of_gradients = 1 + reads + now, of_weights = reads + now;
  Copies copies;
  copies.in_from(gradients_at_) += of_gradients * copied_.gradients;
  copies.in_from(weights_at_) += of_weights * copied_.weights;
  copies.out_to(weights_at_) += now * copied_.weights;
  copies.count = of_gradients * count_.gradients + (of_weights + now) * count_.weights;
  copies.read = of_gradients * read_of_all(gradients_at_, &LayerBytes::gradients) +
                of_weights * read_of_all(weights_at_, &LayerBytes::weights);
  copies.written = now * on_nvme_.weights;
  return copies;
}

}  // namespace spillway::trainer
