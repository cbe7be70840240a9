#include <algorithm>
#include <memory>
#include <utility>

#include "tools/spillway/replay/placement.h"
#include "tools/spillway/replay/replay.h"
#include "tools/spillway/replay/spillway_placement.h"
#include "tools/spillway/replay/torch_model.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kPageBytes = uint64_t{2} << 20;
constexpr uint64_t kMostCapacity = uint64_t{1} << 50;
constexpr uint64_t kSmallRequest = uint64_t{1} << 20;
constexpr size_t kLookAtClockEvery = 16;

std::unique_ptr<Placement> make_placement(const ReplayTarget& target, uint64_t capacity, std::string* error) {
  if (target.allocator == ReplayAllocator::kSpillway) return make_spillway_placement(capacity, error);
  TorchSettings settings = target.settings;
  settings.expandable_segments = target.allocator == ReplayAllocator::kExpandable;
  return std::make_unique<TorchModel>(std::move(settings), capacity);
}

class Replay {
 public:
  Replay(const Requests& requests, Placement* placement)
      : requests_(requests), placement_(*placement), sizes_(requests.blocks) {}

  ReplayOutcome run(ReplayDeadline deadline) {
    for (size_t i = 0; i < requests_.requests.size() && !out_.failure; ++i) {
      if (i % kLookAtClockEvery == 0 && std::chrono::steady_clock::now() > deadline) return finish(false);
      perform(i);
    }
    return finish(true);
  }

 private:
  void perform(size_t index) {
    const ReplayRequest& request = requests_.requests[index];
    if (request.kind == RequestKind::kFreeLater) return placement_.free_later(request.block);
    if (request.kind == RequestKind::kFree) {
      live_ -= std::exchange(sizes_[request.block], 0);
      return placement_.free(request.block);
    }
    if (!placement_.allocate(request.block, request.bytes, request.stream, request.pool)) return fail(index);
    sizes_[request.block] = request.bytes;
    live_ += request.bytes;
    out_.most_live = std::max(out_.most_live, live_);
  }

  void fail(size_t index) {
    const ReplayRequest& request = requests_.requests[index];
    const auto& steps = requests_.steps;
    const auto step = std::upper_bound(steps.begin(), steps.end(), index) - steps.begin();
    out_.failure = {index,
                    request.bytes,
                    static_cast<uint64_t>(step),
                    placement_.largest_free(request.stream, request.pool, request.bytes <= kSmallRequest),
                    placement_.reserved(),
                    live_};
  }

  ReplayOutcome finish(bool finished) {
    out_.finished = finished;
    out_.most_reserved = placement_.most_reserved();
    return std::move(out_);
  }

  const Requests& requests_;
  Placement& placement_;
  std::vector<uint64_t> sizes_;  // of the blocks that are live
  uint64_t live_ = 0;
  ReplayOutcome out_;
};

}  // namespace

const char* replay_allocator_name(ReplayAllocator allocator) {
  static constexpr const char* kNames[] = {"native", "expandable", "spillway"};
  return kNames[static_cast<size_t>(allocator)];
}

ReplayOutcome replay(const Requests& requests, const ReplayTarget& target, uint64_t capacity,
                     ReplayDeadline deadline) {
  ReplayOutcome failed;
  const auto placement = make_placement(target, std::min(capacity, kMostCapacity), &failed.error);
  return placement == nullptr ? failed : Replay(requests, placement.get()).run(deadline);
}

SmallestCapacity smallest_capacity(const Requests& requests, const ReplayTarget& target,
                                   ReplayDeadline deadline) {
  SmallestCapacity found;
  // The same start as benchmarks/capacity: where more memory can be worse, another one finds another place.
  const uint64_t live = std::min(most_live(requests), kMostCapacity);
  uint64_t fails = std::max<uint64_t>(live / kPageBytes, 1) - 1, completes = 2 * live / kPageBytes + 1;
  const auto served = [&](uint64_t pages) -> std::optional<bool> {
    const ReplayOutcome outcome = replay(requests, target, pages * kPageBytes, deadline);
    found.error = outcome.error;
    if (!outcome.finished) return std::nullopt;
    return outcome.completes();
  };
  while (completes * kPageBytes <= kMostCapacity) {
    const auto enough = served(completes);
    if (!enough) return found;
    if (*enough) break;
    fails = completes;
    completes *= 2;
  }
  if (completes * kPageBytes > kMostCapacity) return found;
  while (completes - fails > 1) {
    const uint64_t middle = fails + (completes - fails) / 2;
    const auto enough = served(middle);
    if (!enough) return found;
    (*enough ? completes : fails) = middle;
  }
  found.bytes = completes * kPageBytes;
  return found;
}

}  // namespace spillway::tools
