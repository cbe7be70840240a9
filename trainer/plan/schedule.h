// When a pass uses the weights of its layers, as data: what a device's slots follow.
//
// With parameters or gradients on the host, a device holds them of a few units at a time, in slots. A unit is
// a part of a layer. It comes into a slot before its use, and the next units into the others meanwhile. The
// copies of a pass follow from the order of the uses and from the number of slots alone: the estimate counts
// those that trainer/residency/ makes.
//
// Thread-safety: values and pure functions. Errors: none.
#pragma once
#include <cstdint>
#include <vector>

#include "trainer/plan/plan.h"

namespace spillway::trainer {

// Of weights three: one unit computes and two come, because an MLP's weights take the link longer than the
// attention before it computes. Of gradients three, so that one goes to the host while another one comes from
// there.
inline constexpr uint32_t kWeightSlots = 3, kGradientSlots = 3;
// Of tiles of weights, and of weights that come from all ranks: one computes and the next one comes.
inline constexpr uint32_t kTileSlots = 2, kGatheredSlots = 2;
// Of gradients that ranks add up two: one unit computes, and those of another one go to the ranks' shares.
inline constexpr uint32_t kSumSlots = 2;
// Buffers of the host for layers on a disk, of each kind and device: into two come the next layers from the
// disk, one is between the device and the host, and one goes to the disk.
inline constexpr uint32_t kLayerBuffers = 4;
// Of what layers keep for their backward: the last two stay in their buffers, because it begins with them,
// and two are read ahead in it.
inline constexpr uint32_t kLayersInBuffers = 2, kLayersReadAhead = kLayerBuffers - 2;

// The parts of a layer in the order of its forward. Each is a unit; their numbers go on from layer to layer.
std::vector<Part> parts_of_layer(const Architecture& model, uint32_t layer);
uint32_t first_unit(const Architecture& model, uint32_t layer);

struct UnitUse {
  uint32_t unit = 0;
  bool backward = false;
  bool operator==(const UnitUse&) const = default;
};

// Of a micro-batch's forward and backward, and of an evaluation's forward. What is computed again is used in
// a forward once more.
std::vector<UnitUse> training_uses(const Architecture& model, const Plan& plan);
std::vector<UnitUse> evaluation_uses(const Architecture& model);

// The units in the order of their uses, or of those in a backward.
std::vector<uint32_t> units_in(const std::vector<UnitUse>& uses, bool backward_alone);

// A way through an order of uses, which begins anew at its end or is gone once. Its members call what is used
// a layer, whatever comes to a device as one.
class UseOrder {
 public:
  UseOrder() = default;
  explicit UseOrder(std::vector<uint32_t> uses, bool repeats = true)
      : uses_(std::move(uses)), repeats_(repeats), at_(uses_.size()) {}

  // To the next use of `layer`; an order without it stays where it is.
  void move_to(uint32_t layer);
  // At most `count` other layers that come after the present use, the nearest first. Before the first use,
  // the first ones.
  std::vector<uint32_t> next(uint32_t count) const;

 private:
  size_t left_from(size_t at) const { return repeats_ ? uses_.size() : uses_.size() - at; }

  std::vector<uint32_t> uses_;
  bool repeats_ = true;
  size_t at_ = 0;  // their number: before the first
};

// The layers that are copied into `slots` slots each time that an order is gone through again and again.
std::vector<uint32_t> copied_layers(const std::vector<uint32_t>& uses, uint32_t slots);

}  // namespace spillway::trainer
