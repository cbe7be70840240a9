// Versions, ids, and the life of communicators.
#include <nccl.h>

#include <set>
#include <vector>

#include "simulator/libraries/nccl/api/exports.h"
#include "simulator/libraries/nccl/api/group.h"
#include "simulator/libraries/nccl/api/handles.h"
#include "simulator/libraries/nccl/device.h"
#include "simulator/libraries/nccl/error.h"
#include "simulator/libraries/pinned.h"

namespace spillway::nccl {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

// The fields that an older program's structure has too.
bool has_field(const ncclConfig_t& config, const void* field, size_t bytes) {
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(field) - reinterpret_cast<const char*>(&config));
  return offset + bytes <= config.size;
}

int value_of(const ncclConfig_t& config, const int& field, int otherwise) {
  return has_field(config, &field, sizeof field) && field != NCCL_CONFIG_UNDEF_INT ? field : otherwise;
}

// `inherited` where the program says nothing.
ncclResult_t read_config(const ncclConfig_t* config, const Settings& inherited, Settings* out) {
  *out = inherited;
  out->shares_memory = false;
  if (!config) return ncclSuccess;
  if (config->magic != kConfigMagic || config->size < sizeof(size_t) + 2 * sizeof(unsigned))
    return fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  const int blocking = value_of(*config, config->blocking, inherited.blocking ? 1 : 0);
  if (blocking != 0 && blocking != 1)
    return fail(ncclInvalidArgument, "Invalid config blocking attribute value " + std::to_string(blocking));
  out->blocking = blocking == 1;
  out->least_channels = value_of(*config, config->minCTAs, inherited.least_channels);
  out->most_channels = value_of(*config, config->maxCTAs, inherited.most_channels);
  out->shares_memory = value_of(*config, config->splitShare, 0) == 1;
  return ncclSuccess;
}

ncclResult_t finish_making(ncclComm_t* out, const std::shared_ptr<Communicator>& made, ncclResult_t result) {
  if (!made) return note(result);
  *out = add_handle(made);
  result = await(made);
  if (result == ncclSuccess || result == ncclInProgress) return result;
  take(*out);
  *out = nullptr;
  made->leave(true);
  return note(result);
}

ncclResult_t make(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  Settings settings;
  if (!out) return note(fail(ncclInvalidArgument, "no place for the communicator"));
  *out = nullptr;
  if (const ncclResult_t result = read_config(config, {}, &settings); result != ncclSuccess)
    return note(result);
  const auto meeting = read_unique_id(id);
  if (!meeting) return note(fail(ncclInvalidArgument, "the unique id is not one that ncclGetUniqueId made"));
  const int device = current_device();
  if (device < 0) return note(fail(ncclUnhandledCudaError, "there is no simulated device"));
  ncclResult_t result = ncclSuccess;
  const auto made = Communicator::join(*meeting, ranks, rank, device, settings, &result);
  return finish_making(out, made, result);
}

// Parent of a new communicator, ready to be one.
std::shared_ptr<Communicator> find_parent(ncclComm_t handle, ncclComm_t* out, ncclResult_t* result) {
  auto parent = find(handle);
  if (out) *out = nullptr;
  *result = parent && out ? parent->async_error() : fail(ncclInvalidArgument, "no communicator");
  if (*result == ncclInProgress) *result = fail(ncclInvalidArgument, "the communicator is not ready yet");
  return *result == ncclSuccess ? parent : nullptr;
}

}  // namespace
}  // namespace spillway::nccl

using namespace spillway::nccl;

ncclResult_t ncclGetVersion(int* version) {
  if (!version) return fail(ncclInvalidArgument, "ncclGetVersion: no place for the version");
  *version = spillway::stand_in::pinned_versions().nccl;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  std::string why;
  if (!uniqueId) return fail(ncclInvalidArgument, "ncclGetUniqueId: no place for the id");
  return make_unique_id(computes(), uniqueId, &why) ? ncclSuccess : fail(ncclSystemError, why);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return make(comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return make(comm, nranks, commId, rank, config);
}

// The first id serves: all ranks have the same ones in the same order.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  if (nId < 1 || !commIds) return fail(ncclInvalidArgument, "ncclCommInitRankScalable: no unique id");
  return make(newcomm, nranks, commIds[0], myrank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  ncclUniqueId id;
  if (!comm || ndev < 1) return fail(ncclInvalidArgument, "ncclCommInitAll: no communicators");
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) return result;
  start_group();
  for (int rank = 0; rank < ndev; ++rank) {
    const OnDevice guard(devlist ? devlist[rank] : rank);
    if (make(&comm[rank], ndev, id, rank, nullptr) != ncclSuccess) break;
  }
  return end_group();
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  ncclResult_t result = ncclSuccess;
  const auto parent = find_parent(comm, newcomm, &result);
  if (!parent) return note(result);
  Settings settings;
  result = read_config(config, parent->settings(), &settings);
  if (result != ncclSuccess) return note(result);
  const auto made = Communicator::split(parent, color, key, settings, &result);
  return finish_making(newcomm, made, result);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  ncclResult_t result = ncclSuccess;
  // With NCCL_SHRINK_ABORT the parent may have failed: that is what it is for.
  const auto parent =
      (shrinkFlags & NCCL_SHRINK_ABORT) && newcomm ? find(comm) : find_parent(comm, newcomm, &result);
  if (!parent) return note(result == ncclSuccess ? fail(ncclInvalidArgument, "no communicator") : result);
  if (!excludeRanksList || excludeRanksCount < 1)
    return fail(ncclInvalidArgument, "ncclCommShrink: no rank to leave out");
  const std::set<int> excluded(excludeRanksList, excludeRanksList + excludeRanksCount);
  const bool valid =
      *excluded.begin() >= 0 && *excluded.rbegin() < parent->ranks() && !excluded.contains(parent->rank());
  if (!valid)
    return note(fail(ncclInvalidArgument, "ncclCommShrink: a rank that is not there, or the caller's own"));
  Settings settings;
  if (result = read_config(config, parent->settings(), &settings); result != ncclSuccess) return note(result);
  const auto made = Communicator::shrink(parent, excluded, settings, &result);
  return finish_making(newcomm, made, result);
}

// For the next ncclCommGrow: the ranks that are there know the place without it.
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId) {
  const auto communicator = find(comm);
  if (!communicator || !uniqueId)
    return fail(ncclInvalidArgument, "ncclCommGetUniqueId: no communicator, or no place for the id");
  return communicator->make_id_to_grow(uniqueId);
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config) {
  if (!comm && !uniqueId)
    return note(fail(ncclInvalidArgument, "ncclCommGrow: a new rank needs the unique id"));
  if (!comm) return make(newcomm, nRanks, *uniqueId, rank, config);
  ncclResult_t result = ncclSuccess;
  const auto parent = find_parent(comm, newcomm, &result);
  if (!parent) return note(result);
  if (rank != -1)
    return note(
        fail(ncclInvalidArgument, "ncclCommGrow: a rank of the communicator keeps its number: pass -1"));
  Settings settings;
  if (result = read_config(config, parent->settings(), &settings); result != ncclSuccess) return note(result);
  const auto made = Communicator::grow(parent, nRanks, settings, &result);
  return finish_making(newcomm, made, result);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const auto communicator = find(comm);
  return communicator ? communicator->finalize()
                      : fail(ncclInvalidArgument, "ncclCommFinalize: no communicator");
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  const auto communicator = take(comm);
  if (!communicator)
    return fail(ncclInvalidArgument, "ncclCommDestroy: no communicator, or destroyed before");
  communicator->leave(false);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  const auto communicator = take(comm);
  if (!communicator) return fail(ncclInvalidArgument, "ncclCommAbort: no communicator, or destroyed before");
  communicator->leave(true);
  return ncclSuccess;
}

// What is in flight ends; the communicator may still be destroyed, split or shrunk.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  const auto communicator = find(comm);
  if (!communicator || revokeFlags != NCCL_REVOKE_DEFAULT)
    return fail(ncclInvalidArgument, "ncclCommRevoke: no communicator, or flags that are reserved");
  communicator->leave(true);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  const auto communicator = find(comm);
  if (!communicator || !asyncError)
    return fail(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
  *asyncError = communicator->async_error();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const auto communicator = find(comm);
  if (!communicator || !count) return fail(ncclInvalidArgument, "ncclCommCount: no communicator");
  *count = communicator->ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const auto communicator = find(comm);
  if (!communicator || !device) return fail(ncclInvalidArgument, "ncclCommCuDevice: no communicator");
  *device = communicator->device();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const auto communicator = find(comm);
  if (!communicator || !rank) return fail(ncclInvalidArgument, "ncclCommUserRank: no communicator");
  *rank = communicator->rank();
  return ncclSuccess;
}

SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclGetVersion, (int*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclGetUniqueId, (ncclUniqueId*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommInitRank, (ncclComm_t*, int, ncclUniqueId, int))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommInitRankConfig,
                       (ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommInitRankScalable,
                       (ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommInitAll, (ncclComm_t*, int, const int*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommSplit, (ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommShrink, (ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t, ncclUniqueId*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommGrow,
                       (ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommFinalize, (ncclComm_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommDestroy, (ncclComm_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommAbort, (ncclComm_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommRevoke, (ncclComm_t, int))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommCount, (const ncclComm_t, int*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommCuDevice, (const ncclComm_t, int*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommUserRank, (const ncclComm_t, int*))
