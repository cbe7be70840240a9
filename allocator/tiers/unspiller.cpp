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
  PageReservation pages(heap_.page_bytes);
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

// Of those at hand, of spare ones, of idle ones, or new.
bool Unspiller::provide(uint64_t bytes, PageReservation* pages, Pages which, std::vector<driver::Page>* out) {
  std::vector<IdleRange> idle;
  {
    const Locked guard(heap_.lock);
    heap_.pages.reserve_spare(pages, bytes);
    if (which == Pages::kIdleToo && pages->in_pages() < bytes)
      idle = heap_.tiling.take_idle(bytes - pages->in_pages());
  }
  if (!idle.empty()) reclaimer_.hold_unmapped(idle, pages);
  while (pages->in_pages() < bytes) {
    {
      const Locked guard(heap_.lock);
      if (!heap_.pages.promise(pages, heap_.page_bytes)) return false;
    }
    CUmemGenericAllocationHandle handle = 0;
    if (heap_.device->create(&handle) != CUDA_SUCCESS) return false;
    pages->promised_bytes -= heap_.page_bytes;
    pages->pages.push_back(handle);
  }
  for (uint64_t at = 0; at < bytes; at += heap_.page_bytes) {
    out->push_back({pages->pages.back(), heap_.page_bytes});
    pages->pages.pop_back();
  }
  return true;
}

uint64_t Unspiller::settle(const std::vector<Move>& moves, PageReservation* pages) {
  const Locked guard(heap_.lock);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) {
      for (const driver::Page& page : move.to) pages->pages.push_back(page.handle);
      continue;
    }
    Arena& arena = heap_.tiling.arena_of(move.block);
    uint64_t at = move.range.begin;
    for (const driver::Page& page : move.to) {
      arena.set_page(at, page.handle);
      at += heap_.page_bytes;
    }
    heap_.tiers.spilled.remove(move.block, move.range.begin);
    bytes += move.range.bytes();
  }
  heap_.pages.map(bytes);
  return bytes;
}

}  // namespace spillway
