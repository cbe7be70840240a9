// ncclGroupStart and ncclGroupEnd: what a thread calls in between happens together at the end.
//
// Thread-safety: a group is its thread's own. Ownership: holds its communicators meanwhile. Errors: the first
// of the group is the group's. Units: µs in what a simulation says.
#pragma once
#include <nccl.h>

#include <memory>

#include "simulator/libraries/nccl/communicator/communicator.h"

namespace spillway::nccl {

void start_group();
// `simulate`: nothing is submitted; the estimated time goes there.
ncclResult_t end_group(float* simulate = nullptr);

// At the end of the group, or at once where there is none.
ncclResult_t submit(const std::shared_ptr<Communicator>& communicator, const Call& call, cudaStream_t stream);
// Waits for a communicator that is being made, unless it is not to block.
ncclResult_t await(const std::shared_ptr<Communicator>& communicator);
// An error of a call makes the group fail.
ncclResult_t note(ncclResult_t result);

}  // namespace spillway::nccl
