// Which device's memory has what another one gives away: the peers of a plan.
//
// Thread-safety: pure functions. Errors: false where no device has room. Units: bytes.
#pragma once
#include "trainer/plan/estimate.h"

namespace spillway::trainer {

// `plan`, which wants something on a peer of `device`, with the peer that has most room left behind it: one
// that the plan names already, or else any other device. False where the devices do not reach each other's
// memory, or none has room for it.
bool find_peer(Plan* plan, const Shape& shape, const Machine& machine, uint32_t device);

// The plan is to have something on peers, and names none.
bool lacks_peers(const Plan& plan);

// The peers of such a plan: the device with most room, of each other that has layers, or the embedding and
// the head.
void choose_peers(Plan* plan, const Shape& shape, const Machine& machine);

}  // namespace spillway::trainer
