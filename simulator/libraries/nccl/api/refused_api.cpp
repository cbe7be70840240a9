// What is not simulated: the device-side interface, whose kernels reach into peers' memory, and one-sided
// puts and signals. Said by name instead of answered with garbage.
#include <nccl.h>

#include <set>
#include <string>

#include "base/mutex.h"
#include "simulator/libraries/nccl/error.h"

namespace spillway::nccl {
namespace {

ncclResult_t refuse(const char* name) {
  static Mutex<LockOrder::kLibraryHandles> mutex;
  static auto* const told SPILLWAY_PT_GUARDED_BY(mutex) = new std::set<std::string>;
  const Locked lock(mutex);
  if (told->insert(name).second) say(std::string(name) + " is not simulated: returning ncclInvalidUsage");
  return fail(ncclInvalidUsage, std::string(name) + " is not simulated");
}

}  // namespace
}  // namespace spillway::nccl

// The headers declare these, some only in newer versions, some with types that only device code fills. The
// symbol is therefore given by hand: nothing looks at the arguments.
#define SPILLWAY_NCCL_REFUSED(function)                                \
  extern "C" ncclResult_t spillway_refuse_##function() asm(#function); \
  extern "C" ncclResult_t spillway_refuse_##function() {               \
    return spillway::nccl::refuse(#function);                          \
  }                                                                    \
  extern "C" ncclResult_t spillway_refuse_p##function() asm("p" #function) __attribute__((alias(#function)));

SPILLWAY_NCCL_REFUSED(ncclDevCommCreate)
SPILLWAY_NCCL_REFUSED(ncclDevCommDestroy)
SPILLWAY_NCCL_REFUSED(ncclGetLsaMultimemDevicePointer)
SPILLWAY_NCCL_REFUSED(ncclGetPeerDevicePointer)
SPILLWAY_NCCL_REFUSED(ncclPutSignal)
SPILLWAY_NCCL_REFUSED(ncclSignal)
SPILLWAY_NCCL_REFUSED(ncclWaitSignal)
