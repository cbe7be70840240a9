#include "simulator/libraries/nccl/api/handles.h"

#include <map>
#include <set>

#include "base/mutex.h"

struct ncclComm {
  std::shared_ptr<spillway::nccl::Communicator> communicator;
  std::map<int, spillway::nccl::MadeReduction> reductions;
  int next_reduction = ncclNumOps;
  std::map<void*, void*> registrations;  // buffers
  uintptr_t next_registration = 0x1000;
};

namespace spillway::nccl {
namespace {

Mutex<LockOrder::kLibraryHandles> mutex;

// Never destroyed: programs end with communicators that they have not destroyed.
std::set<ncclComm_t>& handles() SPILLWAY_REQUIRES(mutex) {
  static auto* const all = new std::set<ncclComm_t>;
  return *all;
}

ncclComm_t known(ncclComm_t handle) SPILLWAY_REQUIRES(mutex) {
  return handles().contains(handle) ? handle : nullptr;
}

}  // namespace

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator) {
  auto* handle = new ncclComm{.communicator = std::move(communicator), .reductions = {}, .registrations = {}};
  const Locked lock(mutex);
  handles().insert(handle);
  return handle;
}

std::shared_ptr<Communicator> find(ncclComm_t handle) {
  const Locked lock(mutex);
  return known(handle) ? handle->communicator : nullptr;
}

std::shared_ptr<Communicator> take(ncclComm_t handle) {
  const Locked lock(mutex);
  if (handles().erase(handle) == 0) return nullptr;
  auto communicator = std::move(handle->communicator);
  delete handle;
  return communicator;
}

ncclRedOp_t add_reduction(ncclComm_t handle, const MadeReduction& made) {
  const Locked lock(mutex);
  if (!known(handle)) return ncclNumOps;
  const int number = handle->next_reduction++;
  handle->reductions[number] = made;
  return static_cast<ncclRedOp_t>(number);
}

std::optional<MadeReduction> find_reduction(ncclComm_t handle, ncclRedOp_t operation) {
  const Locked lock(mutex);
  if (!known(handle)) return std::nullopt;
  const auto found = handle->reductions.find(operation);
  return found == handle->reductions.end() ? std::nullopt : std::optional(found->second);
}

bool drop_reduction(ncclComm_t handle, ncclRedOp_t operation) {
  const Locked lock(mutex);
  return known(handle) && handle->reductions.erase(operation) > 0;
}

void* add_registration(ncclComm_t handle, void* buffer) {
  const Locked lock(mutex);
  if (!known(handle)) return nullptr;
  void* made = reinterpret_cast<void*>(handle->next_registration += 16);
  handle->registrations[made] = buffer;
  return made;
}

void* find_registered(ncclComm_t handle, void* registration) {
  const Locked lock(mutex);
  if (!known(handle)) return nullptr;
  const auto found = handle->registrations.find(registration);
  return found == handle->registrations.end() ? nullptr : found->second;
}

bool drop_registration(ncclComm_t handle, void* registration) {
  const Locked lock(mutex);
  return known(handle) && handle->registrations.erase(registration) > 0;
}

}  // namespace spillway::nccl
