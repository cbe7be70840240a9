// What a communicator takes of its card: charged when it is made and when it is connected, given back by
// suspending.
#include "simulator/libraries/labelled_page.h"
#include "simulator/libraries/nccl/communicator/communicator.h"
#include "simulator/libraries/nccl/error.h"

namespace spillway::nccl {

ncclResult_t Communicator::allocate_locked(Buffer& buffer) {
  if (stand_in::make_labelled_page(device_, "nccl", buffer.bytes, &buffer.page) == CUDA_SUCCESS)
    return ncclSuccess;
  buffer.page = 0;
  return fail(ncclUnhandledCudaError,
              "Failed to CUDA calloc async " + std::to_string(buffer.bytes) + " bytes");
}

ncclResult_t Communicator::charge_locked(uint64_t bytes, bool can_suspend) {
  Buffer buffer{.bytes = bytes, .can_suspend = can_suspend};
  const ncclResult_t result = allocate_locked(buffer);
  if (result == ncclSuccess) buffers_.push_back(buffer);
  return result;
}

ncclResult_t Communicator::charge_for(const std::vector<Call>& calls) {
  const Locked lock(mutex_);
  if (suspended_) return fail(ncclInvalidUsage, "the communicator is suspended: call ncclCommResume first");
  if (ranks_ == 1 || settings_.shares_memory) return ncclSuccess;
  for (const Call& call : calls) {
    ncclResult_t result = ncclSuccess;
    if (!call.pairwise() && !ring_connected_) {
      result = charge_locked(ring_bytes(links_), true);
      ring_connected_ = result == ncclSuccess;
    } else if (call.pairwise() && call.peer != rank_ && !connected_.contains(call.peer)) {
      result = charge_locked(pair_bytes(links_), true);
      if (result == ncclSuccess) connected_.insert(call.peer);
    }
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

void Communicator::release_suspendable_locked() {
  for (Buffer& buffer : buffers_)
    if (buffer.can_suspend) stand_in::release_labelled_page(std::exchange(buffer.page, 0));
}

ncclResult_t Communicator::suspend() {
  const Locked lock(mutex_);
  if (!ready_ || left_ || suspended_)
    return fail(ncclInvalidUsage, "ncclCommSuspend: the communicator is not ready, or suspended already");
  release_suspendable_locked();
  suspended_ = true;
  return ncclSuccess;
}

ncclResult_t Communicator::resume() {
  const Locked lock(mutex_);
  if (!suspended_) return fail(ncclInvalidUsage, "ncclCommResume: the communicator is not suspended");
  for (Buffer& buffer : buffers_) {
    if (!buffer.can_suspend) continue;
    if (const ncclResult_t result = allocate_locked(buffer); result != ncclSuccess) {
      release_suspendable_locked();
      return result;
    }
  }
  suspended_ = false;
  return ncclSuccess;
}

Communicator::MemoryStatistics Communicator::memory() {
  const Locked lock(mutex_);
  MemoryStatistics found{.suspended = suspended_};
  for (const Buffer& buffer : buffers_)
    (buffer.can_suspend ? found.can_suspend_bytes : found.persistent_bytes) += buffer.bytes;
  return found;
}

}  // namespace spillway::nccl
