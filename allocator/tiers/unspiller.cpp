#include "allocator/tiers/unspiller.h"

#include "allocator/tiers/choice/choose.h"

namespace spillway {

uint64_t Unspiller::unspill() {
  std::vector<Move> moves;
  {
    const Locked guard(heap_.lock);
    moves = choose_returns(heap_, returnable_room(heap_));
    heap_.tiers.spilled.begin_moves(moves);
  }
  const uint64_t bytes = move_in_on_any_pages(moves);
  if (bytes == 0) postpone();
  const Locked guard(heap_.lock);
  if (bytes != 0) heap_.tiers.steps.blocks_changed();
  return bytes;
}

void Unspiller::postpone() {
  const Locked guard(heap_.lock);
  heap_.tiers.needs.postpone(heap_.order);
}

uint64_t Unspiller::guests_home(DeviceId peer, uint64_t bytes) {
  std::vector<Move> moves;
  {
    const Locked guard(heap_.lock);
    moves = choose_guests_to_return(heap_, peer, bytes);
    heap_.tiers.spilled.begin_moves(moves);
  }
  return move_in_on_any_pages(moves);
}

uint64_t Unspiller::move_in_on_any_pages(std::vector<Move>& moves) {
  PageReservation pages;
  {
    const Locked guard(heap_.lock);
    heap_.tiling.all_is_drained(heap_.order);
  }
  const uint64_t bytes = move_in(moves, &pages, Pages::kIdleToo);
  const Locked guard(heap_.lock);
  heap_.pages.put_back(&pages);
  heap_.tiers.needs.moved_in(bytes);
  return bytes;
}

uint64_t Unspiller::move_in(std::vector<Move>& moves, PageReservation* pages, Pages which) {
  if (moves.empty()) return 0;
  uint64_t bytes = 0;
  {
    const SharedLocked mapping(heap_.mappings_mutex);
    migration_.move_in(moves, [&](uint64_t needed, std::vector<driver::Page>* out) SPILLWAY_REQUIRES_SHARED(
                                  heap_.mappings_mutex) { return provide(needed, pages, which, out); });
    bytes = settle(moves, pages);
  }
  for (const Move& move : moves)
    if (move.done) memory_.give_back({.range = move.range, .pages = move.from, .tier = move.was});
  migration_.end(moves);
  return bytes;
}

// Where spare ones do not last.
void Unspiller::take_idle(uint64_t bytes, PageReservation* pages) {
  std::vector<IdleRange> idle;
  {
    const Locked guard(heap_.lock);
    const uint64_t there = heap_.pages.at_hand(*pages);
    if (there < bytes) idle = heap_.tiling.take_idle(bytes - there);
  }
  if (!idle.empty()) reclaimer_.hold_unmapped(idle, pages);
}

// Of those at hand, of spare ones, of idle ones, or new.
bool Unspiller::provide(uint64_t bytes, PageReservation* pages, Pages which, std::vector<driver::Page>* out) {
  if (which == Pages::kIdleToo) take_idle(bytes, pages);
  CUresult error = CUDA_SUCCESS;
  if (supply_.fill(pages, {&bytes, 1}, &error) != Supplied::kYes) return false;
  const std::vector<driver::Page> filled = pages->take_last(bytes);
  out->insert(out->end(), filled.begin(), filled.end());
  return true;
}

uint64_t Unspiller::settle(const std::vector<Move>& moves, PageReservation* pages) {
  const Locked guard(heap_.lock);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) {
      pages->add(move.to);
      continue;
    }
    Arena& arena = heap_.tiling.arena_of(move.block);
    set_pages(arena, move.range.begin, move.to);
    heap_.tiers.spilled.remove(move);
    if (move.common) restore_in(arena, move.range, move.block, heap_.order);
    bytes += move.range.bytes();
  }
  heap_.pages.map(bytes);
  return bytes;
}

}  // namespace spillway
