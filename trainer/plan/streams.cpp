#include "trainer/plan/streams.h"

#include <algorithm>
#include <numeric>

namespace spillway::trainer {

LayerStreams::LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices,
                           const std::vector<Parameter>& table, uint64_t nvme_least_bytes)
    : weights_at_(plan.parameters),
      gradients_at_(plan.gradients),
      weights_(plan.parameters != Place::kDevice),
      gradients_(plan.gradients != Place::kDevice),
      prepares_(shape.numerics.optimizer == OptimizerKind::kAdafactor),
      nvme_least_bytes_(nvme_least_bytes),
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
    add_home(weights_at_, bytes.weights, &Roles::weights);
    add_home(gradients_at_, bytes.gradients, &Roles::gradients);
  }
  for (uint32_t device = 0; device < devices; ++device) {
    if (weights_) slots_[device].weights = std::min(kWeightSlots, count[device]) * largest[device].weights;
    if (gradients_)
      slots_[device].gradients = std::min(kGradientSlots, count[device]) * largest[device].gradients;
  }
  count_buffers(plan, devices);
}

bool LayerStreams::is_on_nvme(Place place, uint64_t bytes) const {
  return place == Place::kNvme && bytes >= nvme_least_bytes_;
}

void LayerStreams::add_home(Place place, uint64_t bytes, uint64_t Roles::* role) {
  if (place == Place::kDevice) return;
  copied_.*role += bytes;
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

LayerStreams::Copies LayerStreams::of_device(uint32_t micro_batches,
                                             const std::vector<LayerUse>& uses) const {
  Copies copies;
  const auto come = [&](uint64_t bytes, uint64_t times) {
    copies.in += times * bytes, copies.count += times;
  };
  if (weights_) {
    const std::vector<uint32_t> fetched = copied_layers(layers_of(uses, false), kWeightSlots);
    for (const uint32_t layer : fetched) come(layers_[layer].weights, micro_batches);
    copies.read += micro_batches * read_bytes(weights_at_, fetched, &LayerBytes::weights);
  }
  if (!gradients_) return copies;
  const std::vector<uint32_t> backward = layers_of(uses, true);
  // The first micro-batch's are sums of nothing before it.
  const std::vector<uint32_t> fetched = copied_layers(backward, kGradientSlots);
  for (const uint32_t layer : fetched) come(layers_[layer].gradients, micro_batches - 1);
  copies.read += (micro_batches - 1) * read_bytes(gradients_at_, fetched, &LayerBytes::gradients);
  for (const uint32_t layer : backward) {
    const uint64_t bytes = layers_[layer].gradients;
    copies.out += micro_batches * bytes, copies.count += micro_batches;
    if (is_on_nvme(gradients_at_, bytes)) copies.written += micro_batches * bytes;
  }
  return copies;
}

LayerStreams::Copies LayerStreams::of_passes(uint32_t micro_batches) const {
  Copies all;
  for (const std::vector<LayerUse>& uses : uses_) {
    const Copies copies = of_device(micro_batches, uses);
    all.in += copies.in, all.out += copies.out, all.count += copies.count;
    all.read += copies.read, all.written += copies.written;
  }
  if (!just_in_time_) return all;
  all.in += copied_.gradients, all.out += copied_.weights;
  all.read += gradients_ ? read_of_all(gradients_at_, &LayerBytes::gradients) : 0;
  all.written += on_nvme_.weights;
  all.count += layers_.size() * ((gradients_ ? 1 : 0) + (weights_ ? 1 : 0));
  return all;
}

uint64_t LayerStreams::read_of_all(Place place, uint64_t LayerBytes::* kind) const {
  std::vector<uint32_t> order(layers_.size());
  std::iota(order.begin(), order.end(), 0);
  return read_bytes(place, std::move(order), kind);
}

LayerStreams::Copies LayerStreams::of_update() const {
  const uint64_t reads = prepares_ ? 1 : 0, now = just_in_time_ ? 0 : 1;  // before the update, and for it
  const uint64_t of_gradients = gradients_ ? 1 + reads + now : 0, of_weights = weights_ ? reads + now : 0;
  return {.in = of_gradients * copied_.gradients + of_weights * copied_.weights,
          .out = now * copied_.weights,
          .count = layers_.size() * (of_gradients + of_weights + (weights_ ? now : 0)),
          .read = of_gradients * read_of_all(gradients_at_, &LayerBytes::gradients) +
                  of_weights * read_of_all(weights_at_, &LayerBytes::weights),
          .written = now * on_nvme_.weights};
}

}  // namespace spillway::trainer
