// When there are no pages for a request: the event, the handler, and how the incident ended.
#include <algorithm>
#include <chrono>

#include "allocator/accounting/budget.h"
#include "allocator/accounting/incident_totals.h"
#include "allocator/heap.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
constexpr int kHandlerRuns = 3;
constexpr auto kHandlerTime = std::chrono::seconds(30);

std::string mebibytes(uint64_t bytes) {
  const uint64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}
}  // namespace

// While a stream is captured nothing may be drained, unmapped or waited for.
class DeviceHeap::Waiting final : public PendingRequest {
 public:
  Waiting(DeviceHeap& heap, Miss& miss, const OomEvent& what)
      : PendingRequest(what), heap_(heap), miss_(miss) {}
  bool retry() noexcept override { return heap_.retry(miss_); }
  uint64_t reserved_bytes() const noexcept override { return miss_.reservation.bytes(); }
  ReclaimEstimate estimate_reclaim(IdlePages what) const noexcept override {
    return captures() ? ReclaimEstimate{} : heap_.estimate_reclaim(miss_, event.short_bytes, what);
  }
  uint64_t reclaim(IdlePages what) noexcept override { return captures() ? 0 : heap_.reclaim(miss_, what); }
  uint64_t pending_bytes() const noexcept override {
    return captures() ? 0 : heap_.helpful_pending_bytes(miss_);
  }
  uint64_t wait_for_events() noexcept override { return captures() ? 0 : heap_.wait_for_events(miss_); }
  SpillEstimate estimate_spill(const SpillPlace& where) const noexcept override {
    return captures() ? SpillEstimate{} : heap_.estimate_spill(miss_, event.short_bytes, where);
  }
  SpillResult spill(const SpillPlace& where) noexcept override {
    return captures() ? SpillResult{} : heap_.spill(miss_, where);
  }

 private:
  bool captures() const { return event.capture != CaptureState::kNone; }

  DeviceHeap& heap_;
  Miss& miss_;
};

bool DeviceHeap::retry(Miss& miss) {
  if (miss.served() || miss.error != CUDA_SUCCESS) return true;
  if (miss.persistent || (miss.injected && miss.tries++ == 0)) return false;
  return serve(miss) != Served::kShort;
}

// A handler that says it is granted where it is not gets a few more chances.
LadderOutcome DeviceHeap::handle(Waiting& waiting, const Miss& miss) {
  OomHandler* handler = allocator_.handler_.load();
  if (handler == nullptr) return LadderOutcome::kGiveUp;
  LadderOutcome outcome = LadderOutcome::kGiveUp;
  for (int run = 0; run < kHandlerRuns; ++run) {
    outcome = handler->handle(waiting);
    if (miss.served() || miss.error != CUDA_SUCCESS || outcome != LadderOutcome::kGranted) break;
  }
  return outcome;
}

// Everybody else, a strategy too, leaves the free blocks that fit the request to it until the handler has
// ended.
LadderOutcome DeviceHeap::handle_with_kept_blocks(Miss& miss, const OomEvent& event) {
  {
    const Locked guard(lock_);
    miss.arena = &arena_for(miss.request.stream, miss.request.pool, miss.size <= kSmallBytes);
    kept_ = {miss.arena, miss.size};
  }
  set_slow(kSlowLadder);
  inside_handler = true;
  Waiting waiting(*this, miss, event);
  const LadderOutcome outcome = handle(waiting, miss);
  inside_handler = false;
  clear_slow(kSlowLadder);
  const Locked guard(lock_);
  kept_ = {};
  miss.arena = nullptr;
  return outcome;
}

Status DeviceHeap::outcome_of(const Miss& miss, LadderOutcome outcome) {
  if (miss.served()) return Status::kOk;
  if (miss.error != CUDA_SUCCESS) return Status::kDriverFailed;
  return outcome == LadderOutcome::kUnwind ? Status::kUnwind : Status::kOutOfMemory;
}

// Whatever the card has, the process may not take what the request lacks.
bool DeviceHeap::is_over_limit(const Miss& miss, uint64_t short_bytes) {
  const Locked guard(lock_);
  return !miss.refused && quota_.room_in_limit() < short_bytes;
}

// The driver is asked only where something is reserved, and not under the lock.
void DeviceHeap::look_beside_reserve() {
  const spillway_budget* budget = allocator_.budget();
  if (budget == nullptr) return;
  const bool reserves = budget::read(budget->reserve_bytes) != 0;
  const uint64_t free = reserves ? device_->free_bytes(UINT64_MAX) : UINT64_MAX;
  const Locked guard(lock_);
  quota_.see_free(free);
}

Status DeviceHeap::run_handler(Miss& miss, FailurePtr* failure) {
  if (inside_handler) {
    if (failure != nullptr) {
      *failure = std::make_unique<Failure>();
      Failure& detail = **failure;
      detail.event = make_event(miss);
      detail.text = "out of memory inside a strategy: a strategy must not need memory";
    }
    return Status::kOutOfMemory;
  }
  const Locked ladder(ladder_mutex_);
  const Clock::time_point start = Clock::now();
  OomEvent event = make_event(miss);
  event.incident = allocator_.begin_incident();
  event.deadline = start + kHandlerTime;
  if (event.capture == CaptureState::kNone) read_clock();
  const Status status = outcome_of(miss, handle_with_kept_blocks(miss, event));
  const auto elapsed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  const auto us = static_cast<uint64_t>(elapsed);
  {
    const Locked guard(lock_);
    count_incident(incidents_, status, miss.size, us);
  }
  allocator_.end_incident(status, miss.size, us);
  if (status == Status::kOk) return status;
  if (status == Status::kDriverFailed) return driver_failure(miss, failure);
  if (failure == nullptr) return status;
  release_reservation(miss);
  *failure = std::make_unique<Failure>();
  Failure& detail = **failure;
  detail.event = event;
  detail.memory = memory();
  detail.text = "out of memory on device " + std::to_string(device_index_) + ": " +
                mebibytes(miss.request.bytes) + " asked, " + mebibytes(event.short_bytes) + " short";
  return status;
}

Status DeviceHeap::driver_failure(const Miss& miss, FailurePtr* failure) {
  if (failure != nullptr) {
    *failure = std::make_unique<Failure>();
    Failure& detail = **failure;
    detail.event = make_event(miss);
    detail.memory = memory();
    detail.text = "device " + std::to_string(device_index_) + ": " + miss.call + " for " +
                  mebibytes(miss.request.bytes) + ": " + device_->describe(miss.error);
  }
  return Status::kDriverFailed;
}

OomEvent DeviceHeap::make_event(const Miss& miss) {
  OomEvent event;
  event.requested_bytes = miss.request.bytes;
  event.rounded_bytes = miss.size;
  event.device = device_->id();
  event.stream = miss.request.stream;
  event.pool = miss.request.pool;
  event.capture = device_->capturing(miss.request.stream) ? CaptureState::kThisStream : CaptureState::kNone;
  event.largest_extent_bytes = largest_extent(miss);
  const uint64_t extent = event.largest_extent_bytes;
  event.short_bytes = extent < miss.size ? miss.size - extent : miss.size;
  event.over_limit = is_over_limit(miss, event.short_bytes);
  event.may_unwind = miss.returning == nullptr;
  return event;
}

// The largest request of this stream and kind that would be served now, without any strategy.
uint64_t DeviceHeap::largest_extent(const Miss& miss) {
  const uint64_t driver_free = device_->free_bytes(UINT64_MAX) / page_bytes_ * page_bytes_;
  const Locked guard(lock_);
  Arena& arena = arena_for(miss.request.stream, miss.request.pool, miss.size <= kSmallBytes);
  const uint64_t have_bytes =
      pages_at_hand(miss) + std::min(miss.reservation.promised_bytes + quota_.room(), driver_free);
  if (miss.returning != nullptr) return have_bytes / page_bytes_ * page_bytes_;
  if (arena.single_handle) {
    const uint64_t made = std::min(miss.reservation.promised_bytes + quota_.room(), driver_free);
    const Block* idle = arena.largest_hole();
    return std::max(made / page_bytes_ * page_bytes_, idle == nullptr ? 0 : idle->size);
  }
  uint64_t largest =
      arena.segments().empty() ? have_bytes / page_bytes_ * page_bytes_ : arena.largest(have_bytes);
  for (const auto& lender : arenas_)
    if (lends_to(*lender, miss) && lender->largest_hole() != nullptr)
      largest = std::max(largest, lender->largest_hole()->size);
  return largest;
}

}  // namespace spillway
