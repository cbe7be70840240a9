// What the program's handles mean: communicators, reductions that it made, registered buffers.
//
// Thread-safety: any thread. Ownership: a handle keeps its communicator until it is taken away. Errors: a
// handle that is none, or no longer one, is null here. Units: none.
#pragma once
#include <nccl.h>

#include <memory>
#include <optional>

#include "simulator/libraries/nccl/communicator/communicator.h"

namespace spillway::nccl {

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator);
std::shared_ptr<Communicator> find(ncclComm_t handle);
std::shared_ptr<Communicator> take(ncclComm_t handle);

// A reduction made by ncclRedOpCreatePreMulSum.
struct MadeReduction {
  uint32_t type = 0;
  double scalar = 1;
  const void* device_scalar = nullptr;
};
ncclRedOp_t add_reduction(ncclComm_t handle, const MadeReduction& made);
std::optional<MadeReduction> find_reduction(ncclComm_t handle, ncclRedOp_t operation);
bool drop_reduction(ncclComm_t handle, ncclRedOp_t operation);

// Buffers and windows that a communicator may reach directly; nothing is done with them here. The buffer of a
// registration that is none is null.
void* add_registration(ncclComm_t handle, void* buffer);
void* find_registered(ncclComm_t handle, void* registration);
bool drop_registration(ncclComm_t handle, void* registration);

}  // namespace spillway::nccl
