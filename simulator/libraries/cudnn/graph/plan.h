// Closing a descriptor: what must be there is checked, and what cuDNN finds out then (engines, notes, the
// workspace of a plan) is added to it. And running a plan.
//
// Thread-safety: as that of the descriptor. Errors: cuDNN's statuses, the reason by `fail`.
#pragma once
#include "simulator/libraries/cudnn/graph/descriptor.h"

namespace spillway::cudnn {

cudnnStatus_t finalize(State& state);

// Checks that the pack brings all that the plan needs, and launches it.
cudnnStatus_t execute(cudnnHandle_t handle, const State& plan, const State& pack);

}  // namespace spillway::cudnn
