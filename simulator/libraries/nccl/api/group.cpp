#include "simulator/libraries/nccl/api/group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "simulator/libraries/nccl/error.h"

namespace spillway::nccl {
namespace {

// The calls on one stream of one communicator.
struct Batch {
  std::shared_ptr<Communicator> communicator;
  cudaStream_t stream;
  std::vector<Call> calls;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Batch> batches;
  std::vector<std::shared_ptr<Communicator>> made;
};
thread_local Group group;

void add(const std::shared_ptr<Communicator>& communicator, const Call& call, cudaStream_t stream) {
  for (Batch& batch : group.batches)
    if (batch.communicator == communicator && batch.stream == stream) return batch.calls.push_back(call);
  group.batches.push_back({communicator, stream, {call}});
}

// 64-bit floats hold every time that a model gives.
float estimate(const std::vector<Batch>& batches) {
  uint64_t longest = 0;
  for (const Batch& batch : batches)
    longest = std::max(longest, batch.communicator->duration_of(batch.calls));
  return static_cast<float>(static_cast<double>(longest) / 1000);
}

ncclResult_t run(Group& ended) {
  if (ended.error != ncclSuccess) return ended.error;
  bool in_progress = false;
  for (const auto& communicator : ended.made) {
    if (!communicator->settings().blocking) {
      in_progress = true;
      continue;
    }
    if (const ncclResult_t result = communicator->wait_ready(); result != ncclSuccess) return result;
  }
  for (Batch& batch : ended.batches)
    if (const ncclResult_t result = batch.communicator->submit(std::move(batch.calls), batch.stream);
        result != ncclSuccess)
      return result;
  return in_progress ? ncclInProgress : ncclSuccess;
}

}  // namespace

void start_group() {
  ++group.depth;
}

ncclResult_t end_group(float* simulate) {
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return ncclSuccess;
  Group ended = std::exchange(group, Group{});
  if (!simulate) return run(ended);
  *simulate = estimate(ended.batches);
  ended.batches.clear();
  return run(ended);
}

ncclResult_t submit(const std::shared_ptr<Communicator>& communicator, const Call& call,
                    cudaStream_t stream) {
  if (group.depth == 0) return communicator->submit({call}, stream);
  add(communicator, call, stream);
  return ncclSuccess;
}

ncclResult_t await(const std::shared_ptr<Communicator>& communicator) {
  if (group.depth > 0) {
    group.made.push_back(communicator);
    return ncclSuccess;
  }
  return communicator->settings().blocking ? communicator->wait_ready() : ncclInProgress;
}

ncclResult_t note(ncclResult_t result) {
  if (group.depth > 0 && group.error == ncclSuccess && result != ncclInProgress) group.error = result;
  return result;
}

}  // namespace spillway::nccl
