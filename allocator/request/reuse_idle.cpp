// Large requests on a card with room: pages of an idle hole, moved, instead of new ones, so that the same
// memory is not held twice.
#include <algorithm>

#include "allocator/request/growth.h"

namespace spillway {
namespace {
// From so many new pages on: unmapping them once costs a fiftieth of creating as many.
constexpr uint64_t kManyBytes = uint64_t{128} << 20;
// Up to this share of what is held: moving may go on for ever, where creating would have ended it.
constexpr uint64_t kReusedShare = 8;
}  // namespace

// The smallest hole that has all pages the claim needs; null: none has, or enough has been reused.
Block* Growth::idle_hole(const Miss& miss, const Pins& pins) {
  const Arena& arena = *miss.place.arena;
  const uint64_t need = miss.place.placement.need_bytes;
  if (heap_.pages.at_hand(miss.pages) >= need || (reused_bytes_ + need) * kReusedShare > heap_.pages.held())
    return nullptr;
  const uint64_t kept = heap_.tiling.kept_bytes(arena, miss.waits());
  Block* found = nullptr;
  arena.each_hole(need, [&](Block* hole) {
    const bool serves = movable_handles(arena, hole, pins).bytes() >= need && hole->size < kept;
    if (serves && (found == nullptr || hole->size < found->size)) found = hole;
  });
  return found;
}

// Takes the claim's pages out of one idle hole of its arena, into the reservation. Nothing is waited for:
// where the stream is not known to have nothing left to do, nothing is moved. Not in private pools, whose
// graphs run on any stream.
void Growth::reuse_idle(Miss& miss) {
  Arena& arena = *miss.place.arena;
  const uint64_t need = miss.place.placement.need_bytes;
  if (need < kManyBytes || miss.request.pool != 0) return;
  uint64_t order = 0;
  {
    const Locked guard(heap_.lock);
    if (idle_hole(miss, heap_.shared.pinned()) == nullptr) return;
    order = heap_.order;
  }
  if (!heap_.device->idle(arena.stream())) return;
  std::vector<IdleRange> idle;
  {
    const Locked guard(heap_.lock);
    arena.drained_order = std::max(arena.drained_order, order);
    const Pins pins = heap_.shared.pinned();
    Block* hole = idle_hole(miss, pins);
    if (hole == nullptr || hole->tag > arena.drained_order) return;
    const AddressRange range = last_within(arena, movable_handles(arena, hole, pins), need);
    if (range.bytes() == 0) return;
    idle.push_back({&arena, arena.claim_pages(hole, range), range});
    reused_bytes_ += range.bytes();
  }
  reclaimer_.hold(idle, IdlePages::kKeep, &miss.pages);
}

void Growth::forget_reused() {
  const Locked guard(heap_.lock);
  reused_bytes_ = 0;
}

}  // namespace spillway
