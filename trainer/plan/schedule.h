// When a pass uses the weights of its layers, as data: what a device's slots for layers follow.
//
// With parameters or gradients on the host, a device holds them of a few layers at a time, in slots. A layer
// comes into a slot before its use, and the next layers into the others meanwhile. The copies of a pass
// follow from the order of the uses and from the number of slots alone: the estimate counts those that
// trainer/residency/ makes.
//
// Thread-safety: values and pure functions. Errors: none.
#pragma once
#include <cstdint>
#include <vector>

#include "trainer/plan/plan.h"

namespace spillway::trainer {

// Of weights two: one layer computes and the next one comes. Of gradients a third, so that one goes to the
// host while another one comes from there.
inline constexpr uint32_t kWeightSlots = 2, kGradientSlots = 3;
// Buffers of the host for layers on a disk, of each kind and device: into two come the next layers from the
// disk, one is between the device and the host, and one goes to the disk.
inline constexpr uint32_t kLayerBuffers = 4;

struct LayerUse {
  uint32_t layer = 0;
  bool backward = false;  // with its forward before it, where the layer is computed again
  bool operator==(const LayerUse&) const = default;
};

// Of a micro-batch's forward and backward, and of an evaluation's forward.
std::vector<LayerUse> training_uses(const Architecture& model, const Plan& plan);
std::vector<LayerUse> evaluation_uses(const Architecture& model);

// The layers in the order of their uses, or of those in a backward; `layer` decides which are asked for.
std::vector<uint32_t> layers_of(const std::vector<LayerUse>& uses, bool backward_alone);

// A way through an order of uses that begins anew at its end.
class UseOrder {
 public:
  UseOrder() = default;
  explicit UseOrder(std::vector<uint32_t> uses) : uses_(std::move(uses)), at_(uses_.size()) {}

  // To the next use of `layer`; an order without it stays where it is.
  void move_to(uint32_t layer);
  // At most `count` other layers that come after the present use, the nearest first. Before the first use,
  // the first ones.
  std::vector<uint32_t> next(uint32_t count) const;

 private:
  std::vector<uint32_t> uses_;
  size_t at_ = 0;  // their number: before the first
};

// The layers that are copied into `slots` slots each time that an order is gone through again and again.
std::vector<uint32_t> copied_layers(const std::vector<uint32_t>& uses, uint32_t slots);

}  // namespace spillway::trainer
