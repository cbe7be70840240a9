// Communicators that give their memory back for a while, and what they say of it.
#include <nccl.h>

#include "simulator/libraries/nccl/api/exports.h"
#include "simulator/libraries/nccl/api/handles.h"
#include "simulator/libraries/nccl/error.h"

using namespace spillway::nccl;

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  const auto communicator = find(comm);
  if (!communicator || flags != NCCL_SUSPEND_MEM)
    return fail(ncclInvalidArgument,
                "ncclCommSuspend: no communicator, or flags other than NCCL_SUSPEND_MEM");
  return communicator->suspend();
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  const auto communicator = find(comm);
  return communicator ? communicator->resume() : fail(ncclInvalidArgument, "ncclCommResume: no communicator");
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  const auto communicator = find(comm);
  if (!communicator || !value)
    return fail(ncclInvalidArgument, "ncclCommMemStats: no communicator, or no place for the value");
  const Communicator::MemoryStatistics memory = communicator->memory();
  switch (stat) {
    case ncclStatGpuMemSuspend:
      *value = memory.can_suspend_bytes;
      return ncclSuccess;
    case ncclStatGpuMemSuspended:
      *value = memory.suspended ? 1 : 0;
      return ncclSuccess;
    case ncclStatGpuMemPersist:
      *value = memory.persistent_bytes;
      return ncclSuccess;
    case ncclStatGpuMemTotal:
      *value = memory.can_suspend_bytes + memory.persistent_bytes;
      return ncclSuccess;
  }
  return fail(ncclInvalidArgument, "ncclCommMemStats: there is no such statistic");
}

SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommSuspend, (ncclComm_t, int))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommResume, (ncclComm_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommMemStats, (ncclComm_t, ncclCommMemStat_t, uint64_t*))
