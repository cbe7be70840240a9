// The device-side interface, whose kernels reach into peers' memory: not simulated. Said by name instead of
// answered with garbage. (nccl_device.h declares these with types that only device code fills.)
#include <nccl.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "simulator/libraries/nccl/error.h"
#include "simulator/libraries/nccl/exports.h"

namespace spillway::nccl {
namespace {

ncclResult_t refuse(const char* name) {
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (told->insert(name).second) say(std::string(name) + " is not simulated: returning ncclInvalidUsage");
  return fail(ncclInvalidUsage, std::string(name) + " is not simulated");
}

}  // namespace
}  // namespace spillway::nccl

extern "C" {
struct ncclDevComm;
struct ncclDevCommRequirements;

ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*) {
  return spillway::nccl::refuse("ncclDevCommCreate");
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm*) {
  return spillway::nccl::refuse("ncclDevCommDestroy");
}
}

SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclDevCommCreate,
                       (ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclDevCommDestroy, (ncclComm_t, const ncclDevComm*))
