// Large requests on a card with room: pages of an idle hole, moved, instead of new ones, so that the same
// memory is not held twice.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {
namespace {
// From so many new pages on: unmapping them once costs a fiftieth of creating as many.
constexpr uint64_t kManyBytes = uint64_t{128} << 20;
// Up to this share of what is held: moving may go on for ever, where creating would have ended it.
constexpr uint64_t kMovedShare = 8;
}  // namespace

// The smallest hole that has all pages the claim needs; null: none has, or enough has been moved.
Block* DeviceHeap::idle_hole(const Miss& miss, const Arena& arena) {
  const uint64_t need = miss.reservation.placement.need_bytes;
  if (pages_at_hand(miss) >= need || (moved_bytes_ + need) * kMovedShare > quota_.held()) return nullptr;
  const uint64_t kept = kept_bytes(arena, miss.waits());
  Block* found = nullptr;
  arena.each_hole(need, [&](Block* hole) {
    const bool serves = arena.whole_pages(hole).bytes() >= need && hole->size < kept;
    if (serves && (found == nullptr || hole->size < found->size)) found = hole;
  });
  return found;
}

// Takes the claim's pages out of one idle hole of its arena, into the reservation. Nothing is waited for:
// where the stream is not known to have nothing left to do, nothing is moved. Not in private pools, whose
// graphs run on any stream.
void DeviceHeap::move_idle(Miss& miss, Arena& arena) {
  PageReservation& reservation = miss.reservation;
  if (reservation.placement.need_bytes < kManyBytes || miss.request.pool != 0) return;
  uint64_t order = 0;
  {
    const Locked guard(lock_);
    if (idle_hole(miss, arena) == nullptr) return;
    order = order_;
  }
  if (!device_->idle(arena.stream())) return;
  std::vector<IdleRange> victims;
  {
    const Locked guard(lock_);
    arena.drained_order = std::max(arena.drained_order, order);
    Block* hole = idle_hole(miss, arena);
    if (hole == nullptr || hole->tag > arena.drained_order) return;
    AddressRange range = arena.whole_pages(hole);
    range.begin = range.end - reservation.placement.need_bytes;
    victims.push_back({&arena, arena.claim_pages(hole, range), range, false, {}});
    moved_bytes_ += range.bytes();
  }
  hold(victims, reservation, IdlePages::kKeep);
}

}  // namespace spillway
