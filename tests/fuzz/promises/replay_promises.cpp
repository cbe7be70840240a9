#include "tests/fuzz/promises/replay_promises.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/fuzz/promises/promise.h"

namespace spillway::fuzz {
namespace {

using namespace tools;

ReplayDeadline soon() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
}

// Each block is allocated once, in order, and freed at most once after that.
void is_in_order(const Requests& requests) {
  std::vector<bool> live(requests.blocks);
  uint32_t next = 0;
  for (const ReplayRequest& request : requests.requests) {
    if (request.kind == RequestKind::kAllocate) {
      promise(request.block == next++ && request.block < requests.blocks, "blocks are numbered in order");
      promise(request.bytes > 0, "a request is for something");
      promise(request.stream < requests.streams && request.pool < requests.pools,
              "streams and pools are those of the requests");
      live[request.block] = true;
    } else {
      promise(request.block < next && live[request.block], "a block is freed while it lives");
      if (request.kind == RequestKind::kFree) live[request.block] = false;
    }
  }
  promise(next == requests.blocks, "the blocks are counted");
  promise(std::ranges::is_sorted(requests.steps), "steps begin in order");
  promise(requests.steps.empty() || requests.steps.back() <= requests.requests.size(),
          "steps begin where requests are");
}

void is_replayed(const Requests& requests, const ReplayTarget& target, uint64_t capacity) {
  const ReplayOutcome outcome = replay(requests, target, capacity, soon());
  promise(outcome.error.empty(), "a model can always be asked", outcome.error);
  promise(outcome.most_reserved <= capacity, "no more is held than there is");
  // A block that was freed but is pending counts as live, though the allocator may give it back.
  const bool all_are_held = std::ranges::none_of(
      requests.requests, [](const auto& request) { return request.kind == RequestKind::kFreeLater; });
  promise(!all_are_held || outcome.most_live <= outcome.most_reserved, "what is live is held");
  if (!outcome.failure) return;
  promise(outcome.failure->request < requests.requests.size(), "the request that failed is one of them");
  promise(!all_are_held || outcome.failure->live <= outcome.failure->reserved,
          "what is live at a failure is held");
}

}  // namespace

void keeps_promises(const Requests& requests, const TorchSettings& settings) {
  is_in_order(requests);
  const uint64_t live = std::min(most_live(requests), uint64_t{1} << 50);
  for (const auto allocator : {ReplayAllocator::kNative, ReplayAllocator::kExpandable}) {
    const ReplayTarget target{allocator, settings};
    for (const uint64_t capacity : {live / 2, live, 2 * live}) is_replayed(requests, target, capacity);
    const SmallestCapacity smallest = smallest_capacity(requests, target, soon());
    if (!smallest.bytes) continue;
    const ReplayOutcome outcome = replay(requests, target, *smallest.bytes, soon());
    promise(!outcome.finished || outcome.completes(), "the smallest capacity is enough");
  }
}

}  // namespace spillway::fuzz
