// What the copies of the optimizer's states cost where layers are updated right before their next forward, or
// the host's updates of them.
//
// A part of a layer is updated, and then computes. Meanwhile the next parts' states come, as far as the
// device has slots for their tiles: a slot is free again when its tile has been updated. What belongs to no
// layer is updated first, before the forward, and hides nothing but what comes behind it.
//
// Thread-safety: pure. Errors: none. Units: seconds.
#pragma once
#include <vector>

namespace spillway::trainer {

// What is updated together: a part of a layer, or all that belongs to none.
struct LateUpdate {
  double tiles = 0;
  double link = 0;  // of a direction, that its states take, and gradients that come with them; or of the host
  double update = 0;   // of the device
  double forward = 0;  // of the device, behind it and before the next one
};

// By how much the first forward and the updates in it are longer than the device computes.
double shown_by_late_updates(const std::vector<LateUpdate>& updates, double slots);

}  // namespace spillway::trainer
