#include "allocator/tiers/spiller.h"

#include <algorithm>

#include "allocator/tiers/choice/choose.h"

namespace spillway {

SpillResult Spiller::move_out(std::vector<Move> moves, const SpillPlace& where, PageReservation* into) {
  if (moves.empty()) return {};
  const SpillResult out =
      where.tier == Tier::kNvme ? to_file(moves, where, into) : to_memory(moves, where, into);
  migration_.end(moves);
  return out;
}

SpillResult Spiller::to_memory(std::vector<Move>& moves, const SpillPlace& where, PageReservation* into) {
  SpillResult out;
  SpillPlace left = where;
  {
    const SharedLocked mapping(heap_.mappings_mutex);
    migration_.run(moves, [&](Move& move) {
      CUmemGenericAllocationHandle handle = 0;
      out.refused = out.refused || memory_.make(left, move.range.bytes(), &handle) != CUDA_SUCCESS;
      if (out.refused) return false;
      left.most_bytes -= std::min(left.most_bytes, move.range.bytes());
      move.from = migration_.pages_in(move.block, move.range);
      move.to = {{handle, move.range.bytes()}};
      return true;
    });
    out.bytes = settle(moves, into);
  }
  for (const Move& move : moves)
    if (!move.done && !move.to.empty())
      memory_.give_back({.range = move.range, .handle = move.to.front().handle, .tier = move.tier});
  return out;
}

// Nobody uses such a block, so that nothing needs to stand still for it but what was queued before: that is
// waited for after the blocks were claimed, because one that was done with a moment ago may have work in
// flight.
SpillResult Spiller::to_file(std::vector<Move>& moves, const SpillPlace& where, PageReservation* into) {
  SpillResult out;
  if (where.come_to_rest()) file_.write_all(moves);
  {
    const SharedLocked mapping(heap_.mappings_mutex);
    for (Move& move : moves) {
      CUresult result = move.done ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
      if (move.done) {
        move.from = migration_.pages_in(move.block, move.range);
        result = heap_.device->unmap(move.range.begin, move.range.bytes());
        move.done = result == CUDA_SUCCESS;
      }
      if (!move.stored.empty()) migration_.record(move, result);
    }
    out.bytes = settle(moves, into);
  }
  for (const Move& move : moves)
    if (!move.done) memory_.give_back(move.stored);
  return out;
}

uint64_t Spiller::settle(const std::vector<Move>& moves, PageReservation* into) {
  const Locked guard(heap_.lock);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) continue;
    Arena& arena = heap_.tiling.arena_of(move.block);
    into->add(move.from);
    arena.set_pages(move.range, move.tier == Tier::kNvme ? kPageStored : kPageElsewhere);
    heap_.tiers.spilled.add(move.block, {.range = move.range,
                                         .handle = move.to.empty() ? 0 : move.to.front().handle,
                                         .tier = move.tier,
                                         .peer = move.peer,
                                         .stored = move.stored});
    bytes += move.range.bytes();
  }
  heap_.pages.unmap(bytes);
  if (bytes == 0) return 0;
  heap_.tiers.needs.moved_out(heap_.order, heap_.need());
  heap_.set_slow(kSlowSpilled);
  return bytes;
}

uint64_t Spiller::guests_to_host(DeviceId peer, uint64_t bytes, uint64_t most_host_bytes) {
  std::vector<Move> moves;
  {
    const Locked guard(heap_.lock);
    moves = choose_guests(heap_, peer, bytes);
    heap_.tiers.spilled.begin_moves(moves);
  }
  uint64_t moved = 0;
  {
    const SharedLocked mapping(heap_.mappings_mutex);
    migration_.run(moves, [&](Move& move) {
      CUmemGenericAllocationHandle handle = 0;
      const SpillPlace where{.tier = Tier::kHost, .most_bytes = most_host_bytes};
      if (move.range.bytes() > most_host_bytes ||
          memory_.make(where, move.range.bytes(), &handle) != CUDA_SUCCESS)
        return false;
      most_host_bytes -= move.range.bytes();
      move.to = {{handle, move.range.bytes()}};
      return true;
    });
    moved = settle_guests(moves);
  }
  for (const Move& move : moves)
    if (!move.to.empty())
      memory_.give_back({.range = move.range,
                         .handle = (move.done ? move.from : move.to).front().handle,
                         .tier = move.done ? Tier::kPeer : Tier::kHost});
  migration_.end(moves);
  return moved;
}

uint64_t Spiller::settle_guests(const std::vector<Move>& moves) {
  const Locked guard(heap_.lock);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) continue;
    heap_.tiers.spilled.went_to_host(move);
    bytes += move.range.bytes();
  }
  return bytes;
}

}  // namespace spillway
