#include "allocator/request/waiting_request.h"

#include <algorithm>

#include "allocator/costs.h"
#include "allocator/tiers/choice/common_pages.h"

namespace spillway {
namespace {

// A handle is divided only while launches are held, and moves to a file let them go on.
bool may_divide_for(const SpillPlace& where) {
  return where.tier != Tier::kNvme;
}

}  // namespace

bool WaitingRequest::retry() noexcept {
  if (miss_.ended()) return true;
  if (miss_.persistent || (miss_.injected && miss_.tries++ == 0)) return false;
  return provider_.serve(miss_) != Served::kShort;
}

ReclaimEstimate WaitingRequest::estimate_reclaim(IdlePages what) const noexcept {
  ReclaimEstimate out;
  if (captures()) return out;
  const uint64_t page = heap_.page_bytes;
  const Locked guard(heap_.lock);
  const IdleBytes idle = heap_.tiling.idle_bytes();
  if (fits(heap_, miss_)) {
    // Nothing is short: only a failure that was injected may still want an idle page returned.
    if (!miss_.injected || what != IdlePages::kGiveBack) return out;
    out.pages = std::min(idle.all, (miss_.size + page - 1) / page * page) / page;
    out.useful_bytes = out.pages * page;
    return out;
  }
  if (!miss_.arena->has_pages()) {
    const uint64_t missing = short_of_single(heap_, miss_);
    if (what != IdlePages::kGiveBack || missing == 0 || idle.all < missing) return out;
    out.pages = (missing + page - 1) / page;
    out.useful_bytes = event.short_bytes;
    out.waits = missing > idle.drained;
    return out;
  }
  const uint64_t has = obtainable(heap_, miss_);
  const std::optional<Placement> placement = place_for(heap_, miss_, has, idle.all);
  if (!placement || placement->need_bytes <= has) return out;
  out.pages = (placement->need_bytes - has + page - 1) / page;
  out.useful_bytes = event.short_bytes;
  out.waits = out.pages * page > idle.drained;
  return out;
}

// A place, and in `idle` the pages that it lacks.
WaitingRequest::Idle WaitingRequest::take_idle(std::vector<IdleRange>* idle) {
  const Locked guard(heap_.lock);
  if (!miss_.arena->has_pages() || fits(heap_, miss_)) return Idle::kNotNeeded;
  const uint64_t has = obtainable(heap_, miss_);
  const IdleBytes there = heap_.tiling.idle_bytes();
  const std::optional<Placement> placement = place_for(heap_, miss_, has, there.drained);
  if (!placement) return place_for(heap_, miss_, has, there.all) ? Idle::kAfterDraining : Idle::kTooFew;
  take_place(heap_, miss_, *placement);
  if (placement->need_bytes > has) *idle = heap_.tiling.take_idle(placement->need_bytes - has);
  return Idle::kTaken;
}

uint64_t WaitingRequest::reclaim(IdlePages what) noexcept {
  if (captures() || miss_.place.claim != nullptr) return 0;
  const Device::Scope scope(*heap_.device);
  std::vector<IdleRange> idle;
  Idle found = Idle::kAfterDraining;
  makers_.reclaimer.drain_until([&] {
    found = take_idle(&idle);
    return found != Idle::kAfterDraining;
  });
  if (found == Idle::kTaken) return makers_.reclaimer.hold(idle, what, &miss_.pages);
  // A hole fits already, because the failure was injected, or no page can help: giving back is what there is
  // to do.
  if (found != Idle::kNotNeeded || what != IdlePages::kGiveBack) return 0;
  return makers_.reclaimer.reclaim_anything(miss_.size, &miss_.pages);
}

// Whether a hole fits it, or pages that are idle or may still be created.
bool WaitingRequest::could_serve() const {
  const Locked guard(heap_.lock);
  return fits(heap_, miss_) ||
         place_for(heap_, miss_, obtainable(heap_, miss_), heap_.tiling.idle_bytes().all).has_value();
}

// Where moving idle pages would serve the request, waiting is worth it only for a block that will serve it
// whole.
uint64_t WaitingRequest::pending_bytes() const noexcept {
  if (captures()) return 0;
  const bool pages_would_do = could_serve();
  const bool one_fits = pages_would_do && !miss_.pages_only &&
                        makers_.pending.any_block([&](Block* block) SPILLWAY_REQUIRES(heap_.lock) {
                          return block->size >= miss_.size && &heap_.tiling.arena_of(block) == miss_.arena &&
                                 !heap_.tiers.spilled.contains(block);
                        });
  const Locked guard(heap_.lock);
  return !pages_would_do || (one_fits && !fits(heap_, miss_)) ? heap_.pending_here() : 0;
}

uint64_t WaitingRequest::wait_for_events() noexcept {
  if (captures()) return 0;
  const Device::Scope scope(*heap_.device);
  const auto pending = [&] {
    const Locked guard(heap_.lock);
    return heap_.pending_here();
  };
  const uint64_t before = pending();
  const bool pages_would_do = could_serve();
  const auto enough = [&] {
    if (!pages_would_do) return could_serve();
    const Locked guard(heap_.lock);
    return fits(heap_, miss_);
  };
  for (bool more = true; more && !enough();) {
    more = makers_.pending.wait_for_oldest();
    makers_.pending.poll();
  }
  const uint64_t left = pending();
  return before > left ? before - left : 0;
}

std::optional<WaitingRequest::Shortfall> WaitingRequest::shortfall() const {
  if (!miss_.arena->has_pages() || fits(heap_, miss_)) return std::nullopt;
  const uint64_t has = obtainable(heap_, miss_);
  const std::optional<Placement> placement = place_for(heap_, miss_, has, heap_.device->total_bytes());
  if (!placement || placement->need_bytes <= has) return std::nullopt;
  return Shortfall{*placement, placement->need_bytes - has};
}

uint64_t WaitingRequest::lacking(const Shortfall& missing) const {
  const uint64_t all = heap_.tiling.idle_bytes().all;
  // The place may have pinned ones, which are not among them.
  const uint64_t idle = all - std::min(all, missing.placement.idle_bytes);
  return missing.bytes - std::min(missing.bytes, idle);
}

DivisionEstimate WaitingRequest::estimate_division() const noexcept {
  DivisionEstimate out;
  if (captures()) return out;
  const Locked guard(heap_.lock);
  const std::optional<Shortfall> missing = shortfall();
  const uint64_t needed = missing ? lacking(*missing) : 0;
  if (needed == 0) return out;
  uint64_t won = 0;
  for (const PartlyUsedHandle& handle : partly_idle_handles(heap_)) {
    if (won >= needed) break;
    won += handle.idle_bytes;
    ++out.handles;
    out.pages += handle.range.bytes() / heap_.page_bytes;
  }
  const double share = std::min(1.0, static_cast<double>(won) / static_cast<double>(needed));
  out.useful_bytes = static_cast<uint64_t>(static_cast<double>(event.short_bytes) * share);
  return out;
}

uint64_t WaitingRequest::divide_handles() noexcept {
  if (captures() || miss_.place.claim != nullptr) return 0;
  const Device::Scope scope(*heap_.device);
  std::vector<PartlyUsedHandle> handles;
  uint64_t needed = 0;
  {
    const Locked guard(heap_.lock);
    const std::optional<Shortfall> missing = shortfall();
    needed = missing ? lacking(*missing) : 0;
    if (needed == 0) return 0;
    heap_.tiling.all_is_drained(heap_.order);
    handles = partly_idle_handles(heap_);
  }
  return makers_.divider.divide(handles, needed, &miss_.pages);
}

SpillEstimate WaitingRequest::estimate_spill(const SpillPlace& where) const noexcept {
  SpillEstimate out;
  if (captures()) return out;
  const Locked guard(heap_.lock);
  const std::optional<Shortfall> missing = shortfall();
  if (!missing) return out;
  out.needed_bytes = lacking(*missing);
  if (out.needed_bytes == 0) return out;
  const Grain grain = may_divide_for(where) ? Grain::kPages : Grain::kHandles;
  const Wanted wanted{.bytes = out.needed_bytes, .place = missing->placement.claim};
  std::vector<Move> moves = choose_moves(heap_, wanted, where, UINT64_MAX, grain);
  out.movable_bytes = bytes_of(moves);
  if (out.movable_bytes < out.needed_bytes) return out;
  if (out.movable_bytes > where.most_bytes) {
    if (!where.part) return out;
    moves = choose_moves(heap_, wanted, where, where.most_bytes, grain);
  }
  out.bytes = bytes_of(moves);
  const double share = static_cast<double>(out.bytes) / static_cast<double>(out.movable_bytes);
  out.useful_bytes = static_cast<uint64_t>(static_cast<double>(event.short_bytes) * share);
  out.slowdown = slowdown(heap_, moves);
  out.measured = heap_.tiers.steps.measured();
  out.bytes_per_us = bytes_per_us(heap_, where.tier);
  out.make_us = makers_.spiller.make_us(moves);
  return out;
}

// Blocks that share handles with others can go when these are divided.
void WaitingRequest::divide_for_spill(const SpillPlace& where) {
  if (!may_divide_for(where)) return;
  std::vector<PartlyUsedHandle> handles;
  {
    const Locked guard(heap_.lock);
    const std::optional<Shortfall> missing = shortfall();
    if (!missing) return;
    const uint64_t needed = lacking(*missing);
    if (needed == 0 || bytes_of(own_moves(heap_, needed, where, where.most_bytes)) >= needed) return;
    heap_.tiling.all_is_drained(heap_.order);
    handles = handles_under_cold_blocks(heap_, where, {.bytes = needed, .place = missing->placement.claim});
  }
  makers_.divider.divide(handles, UINT64_MAX, &miss_.pages);
}

SpillResult WaitingRequest::spill(const SpillPlace& where) noexcept {
  if (captures() || miss_.place.claim != nullptr) return {};
  const Device::Scope scope(*heap_.device);
  divide_for_spill(where);
  std::vector<IdleRange> idle;
  std::vector<Move> moves;
  {
    const Locked guard(heap_.lock);
    const std::optional<Shortfall> missing = shortfall();
    if (!missing) return {};
    uint64_t needed = missing->bytes;
    if (where.tier != Tier::kNvme) heap_.tiling.all_is_drained(heap_.order);
    take_place(heap_, miss_, missing->placement);
    idle = heap_.tiling.take_idle(needed);
    for (const IdleRange& it : idle) needed -= std::min(needed, it.range.bytes());
    if (needed != 0)
      moves = choose_moves(heap_, {needed, costs::ahead_bytes(heap_.most_bytes())}, where, where.most_bytes);
    heap_.tiers.spilled.begin_moves(moves);
    take_free_parts(heap_, moves);
  }
  const uint64_t idle_bytes = makers_.reclaimer.hold(idle, IdlePages::kKeep, &miss_.pages);
  const SpillResult moved = makers_.spiller.move_out(std::move(moves), where, &miss_.pages);
  return {idle_bytes + moved.bytes, moved.refused};
}

}  // namespace spillway
