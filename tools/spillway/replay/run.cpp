#include <algorithm>
#include <memory>
#include <utility>

#include "tools/spillway/replay/placement.h"
#include "tools/spillway/replay/replay.h"
#include "tools/spillway/replay/spillway_placement.h"
#include "tools/spillway/replay/torch/torch_model.h"
#include "tools/spillway/replay/traced.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kPageBytes = uint64_t{2} << 20;
constexpr uint64_t kMostCapacity = uint64_t{1} << 50;
constexpr uint64_t kSmallRequest = uint64_t{1} << 20;
constexpr size_t kLookAtClockEvery = 16;

std::unique_ptr<Placement> make_torch_model(const ReplayTarget& target, uint64_t capacity,
                                            PlacementObserver* observer) {
  TorchSettings settings = target.settings;
  settings.expandable_segments = target.allocator == ReplayAllocator::kExpandable;
  return std::make_unique<TorchModel>(std::move(settings), capacity, observer);
}

class Replay {
 public:
  // `recorder` may be null.
  Replay(const Requests& requests, uint64_t capacity, Placement* placement, ReplayRecorder* recorder)
      : requests_(requests),
        capacity_(capacity),
        placement_(*placement),
        recorder_(recorder),
        sizes_(requests.blocks) {}

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
    if (recorder_ != nullptr) recorder_->begin(index);
    if (request.kind == RequestKind::kFreeLater) return free_later(request.block);
    if (request.kind == RequestKind::kFree) {
      live_ -= std::exchange(sizes_[request.block], 0);
      return placement_.free(request.block);
    }
    if (!placement_.allocate(request.block, request.bytes, request.stream, request.pool)) return fail(index);
    sizes_[request.block] = request.bytes;
    live_ += request.bytes;
    out_.most_live = std::max(out_.most_live, live_);
  }

  void free_later(uint32_t block) {
    if (recorder_ != nullptr) recorder_->freed_later(block);
    placement_.free_later(block);
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
    if (recorder_ != nullptr) recorder_->failed(capacity_ - std::min(capacity_, placement_.reserved()));
  }

  ReplayOutcome finish(bool finished) {
    out_.finished = finished;
    out_.most_reserved = placement_.most_reserved();
    return std::move(out_);
  }

  const Requests& requests_;
  const uint64_t capacity_;
  Placement& placement_;
  ReplayRecorder* const recorder_;
  std::vector<uint64_t> sizes_;  // of the blocks that are live
  uint64_t live_ = 0;
  ReplayOutcome out_;
};

}  // namespace

const char* replay_allocator_name(ReplayAllocator allocator) {
  static constexpr const char* kNames[] = {"native", "expandable", "spillway"};
  return kNames[static_cast<size_t>(allocator)];
}

namespace {

ReplayOutcome replay_on_spillway(const Requests& requests, uint64_t capacity, ReplayDeadline deadline,
                                 ReplayRecord* record) {
  ReplayOutcome outcome;
  TracedReplay traced(requests);
  trace::Trace* const trace = record == nullptr ? nullptr : traced.start(&outcome.error);
  if (!outcome.error.empty()) return outcome;
  const auto placement = make_spillway_placement(capacity, trace, &outcome.error);
  if (placement == nullptr) return outcome;
  outcome = Replay(requests, capacity, placement.get(), nullptr).run(deadline);
  if (record != nullptr) record->device = traced.finish(outcome.failure.has_value(), &record->incomplete);
  return outcome;
}

}  // namespace

ReplayOutcome replay(const Requests& requests, const ReplayTarget& target, uint64_t capacity,
                     ReplayDeadline deadline, ReplayRecord* record) {
  capacity = std::min(capacity, kMostCapacity);
  if (target.allocator == ReplayAllocator::kSpillway)
    return replay_on_spillway(requests, capacity, deadline, record);
  std::optional<ReplayRecorder> recorder;
  if (record != nullptr) recorder.emplace(requests, target.allocator == ReplayAllocator::kExpandable);
  ReplayRecorder* const used = recorder ? &*recorder : nullptr;
  const auto placement = make_torch_model(target, capacity, used);
  ReplayOutcome outcome = Replay(requests, capacity, placement.get(), used).run(deadline);
  if (recorder) record->device = recorder->finish();
  return outcome;
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
