// When there is no memory for a request: the event, the handler, and how the incident ended.
#include <algorithm>
#include <chrono>

#include "allocator/accounting/equation.h"
#include "allocator/accounting/incident_totals.h"
#include "allocator/request/request_path.h"
#include "allocator/tiers/choice/pressure.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
constexpr uint32_t kHandlerRuns = 3;
constexpr auto kHandlerTime = std::chrono::seconds(30);

std::string mebibytes(uint64_t bytes) {
  const uint64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

Status outcome_of(const Miss& miss, LadderOutcome outcome) {
  if (miss.served || miss.segment_bytes != 0) return Status::kOk;
  if (miss.error != CUDA_SUCCESS) return Status::kDriverFailed;
  return outcome == LadderOutcome::kUnwind ? Status::kUnwind : Status::kOutOfMemory;
}
}  // namespace

// A handler that says it is granted where it is not gets a few more chances.
LadderOutcome RequestPath::handle(WaitingRequest& waiting, const Miss& miss) {
  OomHandler* handler = heap_.shared.handler.load();
  if (handler == nullptr) return LadderOutcome::kGiveUp;
  LadderOutcome outcome = LadderOutcome::kGiveUp;
  for (uint32_t run = 0; run < kHandlerRuns; ++run) {
    waiting.event.attempt = run;
    outcome = handler->handle(waiting);
    if (miss.ended() || outcome != LadderOutcome::kGranted) break;
  }
  return outcome;
}

// Everybody else, a strategy too, leaves the free blocks that fit the request to it until the handler has
// ended.
LadderOutcome RequestPath::handle_with_kept_blocks(Miss& miss, const OomEvent& event) {
  {
    const Locked guard(heap_.lock);
    miss.arena = &arena_of(heap_, miss);
    heap_.tiling.keep(*miss.arena, miss.size);
  }
  heap_.set_slow(kSlowLadder);
  inside_handler = true;
  WaitingRequest waiting(heap_, provider_, makers_, miss, event);
  const LadderOutcome outcome = handle(waiting, miss);
  inside_handler = false;
  heap_.clear_slow(kSlowLadder);
  const Locked guard(heap_.lock);
  heap_.tiling.keep_nothing();
  miss.arena = nullptr;
  return outcome;
}

Status RequestPath::refuse_nested(const Miss& miss, FailurePtr* failure) {
  if (failure != nullptr) {
    *failure = std::make_unique<Failure>();
    Failure& detail = **failure;
    detail.event = make_event(miss);
    detail.text = "out of memory inside a strategy: a strategy must not need memory";
  }
  return Status::kOutOfMemory;
}

Status RequestPath::run_handler(Miss& miss, FailurePtr* failure) {
  if (inside_handler) return refuse_nested(miss, failure);
  provider_.look_at_source(miss);
  const Locked ladder(ladder_mutex_);
  const Clock::time_point start = Clock::now();
  OomEvent event = make_event(miss);
  event.incident = heap_.shared.incidents.fetch_add(1) + 1;
  event.deadline = start + kHandlerTime;
  if (event.capture == CaptureState::kNone) read_clock(heap_);
  const Status status = outcome_of(miss, handle_with_kept_blocks(miss, event));
  const auto elapsed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  const auto us = static_cast<uint64_t>(elapsed);
  {
    const Locked guard(heap_.lock);
    count_incident(heap_.incidents, status, miss.size, us);
  }
  if (spillway_incident_totals* totals = heap_.shared.incident_totals.load())
    count_incident(*totals, status, miss.size, us);
  if (status == Status::kOk) return status;
  if (status == Status::kDriverFailed) return driver_failure(miss, failure);
  if (failure == nullptr) return status;
  release(miss);
  *failure = std::make_unique<Failure>();
  Failure& detail = **failure;
  detail.event = event;
  detail.memory = memory_of(heap_);
  detail.text = "out of memory on device " + std::to_string(heap_.device_index) + ": " +
                mebibytes(miss.request.bytes) + " asked, " + mebibytes(event.short_bytes) + " short";
  return status;
}

Status RequestPath::driver_failure(const Miss& miss, FailurePtr* failure) {
  if (failure != nullptr) {
    *failure = std::make_unique<Failure>();
    Failure& detail = **failure;
    detail.event = make_event(miss);
    detail.memory = memory_of(heap_);
    detail.text = "device " + std::to_string(heap_.device_index) + ": " + miss.call + " for " +
                  mebibytes(miss.request.bytes) + ": " + heap_.device->describe(miss.error);
  }
  return Status::kDriverFailed;
}

// Whatever the card has, the process may not take what the request lacks.
bool RequestPath::is_over_limit(const Miss& miss, uint64_t short_bytes) {
  const Locked guard(heap_.lock);
  const Quota& quota = heap_.pages.quota();
  const uint64_t room = miss.source != nullptr ? quota.room_below_limit() : quota.room_in_limit();
  return !miss.refused && room < short_bytes;
}

OomEvent RequestPath::make_event(const Miss& miss) {
  OomEvent event;
  event.requested_bytes = miss.request.bytes;
  event.rounded_bytes = miss.size;
  event.device = heap_.device->id();
  event.stream = miss.request.stream;
  event.pool = miss.request.pool;
  event.capture =
      heap_.device->capturing(miss.request.stream) ? CaptureState::kThisStream : CaptureState::kNone;
  event.largest_extent_bytes = largest_extent(miss);
  const uint64_t extent = event.largest_extent_bytes;
  event.short_bytes = extent < miss.size ? miss.size - extent : miss.size;
  event.over_limit = is_over_limit(miss, event.short_bytes);
  event.may_unwind = !miss.pages_only;
  return event;
}

// The largest request of this stream and kind that would be served now, without any strategy.
uint64_t RequestPath::largest_extent(const Miss& miss) {
  const uint64_t page = heap_.page_bytes;
  const uint64_t free =
      miss.source != nullptr ? heap_.device->total_bytes() : heap_.device->free_bytes(UINT64_MAX);
  const Locked guard(heap_.lock);
  Arena& arena = arena_of(heap_, miss);
  const bool was_asked = miss.segment_bytes != 0;  // the source, which refused
  const uint64_t made =
      was_asked ? 0 : std::min(miss.pages.promised_bytes + room_for(heap_, miss), free / page * page);
  const uint64_t have_bytes = heap_.pages.at_hand(miss.pages) + made;
  if (miss.pages_only) return have_bytes / page * page;
  if (!arena.has_pages()) {
    const Block* idle = arena.largest_hole();
    return std::max(made / page * page, idle == nullptr ? 0 : idle->size);
  }
  uint64_t largest = arena.segments().empty() ? have_bytes / page * page : arena.largest(have_bytes);
  for (const auto& lender : heap_.tiling.arenas())
    if (lends_to(heap_, *lender, miss) && lender->largest_hole() != nullptr)
      largest = std::max(largest, lender->largest_hole()->size);
  return largest;
}

}  // namespace spillway
