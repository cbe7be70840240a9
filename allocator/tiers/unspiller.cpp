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
  memory_.release_kept();
  if (bytes == 0) postpone();
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
  std::vector<IdleRange> idle;
  {
    const Locked guard(heap_.lock);
    heap_.tiling.all_is_drained(heap_.order);
    const uint64_t needed = bytes_of(moves), spare = heap_.pages.spare();
    idle = heap_.tiling.take_idle(needed > spare ? needed - spare : 0);
  }
  reclaimer_.hold(idle, IdlePages::kKeep, &pages);
  const uint64_t bytes = move_in(moves, &pages);
  const Locked guard(heap_.lock);
  heap_.pages.put_back(&pages);
  heap_.tiers.needs.moved_in(bytes);
  return bytes;
}

uint64_t Unspiller::move_in(std::vector<Move>& moves, PageReservation* pages) {
  if (moves.empty()) return 0;
  uint64_t bytes = 0;
  {
    const SharedLocked mapping(heap_.mappings_mutex);
    migration_.run(moves, [&](Move& move) { return provide(move, pages); });
    bytes = settle(moves, pages);
  }
  for (const Move& move : moves)
    if (move.done)
      memory_.give_back({.range = move.range, .handle = move.from.front().handle, .tier = move.was});
  migration_.end(moves);
  return bytes;
}

// Device pages for what comes back: of those at hand, of spare ones, or new.
bool Unspiller::provide(Move& move, PageReservation* pages) {
  const uint64_t bytes = move.range.bytes();
  CUresult error = CUDA_SUCCESS;
  if (supply_.fill(pages, {&bytes, 1}, &error) != Supplied::kYes) return false;
  move.to = pages->take_last(bytes);
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
    heap_.tiling.arena_of(move.block).set_pages(move.range.begin, move.to);
    heap_.tiers.spilled.remove_last(move.block);
    bytes += move.range.bytes();
  }
  heap_.pages.map(bytes);
  return bytes;
}

}  // namespace spillway
