// What newer versions of nccl.h declare and the machine's may not: the library exports it whatever header it
// is built with, because programs bring PyTorch builds that import it. Values are those of NCCL 2.30.7's
// nccl.h.
//
// Thread-safety, ownership, errors, units: as for the rest of NCCL's interface.
#pragma once
#include <nccl.h>

#include <cstdint>

extern "C" {
#if NCCL_VERSION_CODE < 22900
#define NCCL_SUSPEND_MEM 0x01
typedef enum {
  ncclStatGpuMemSuspend = 0,    // bytes that can be suspended
  ncclStatGpuMemSuspended = 1,  // whether they are: 0 or 1
  ncclStatGpuMemPersist = 2,    // bytes that can not
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);
#endif
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);
}
