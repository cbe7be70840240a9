#include "allocator/tiers/spiller.h"

#include <algorithm>

#include "allocator/costs.h"
#include "allocator/tiers/choice/choose.h"

namespace spillway {
namespace {

// Of the limit: with no more of it left, growth soon fails.
constexpr uint64_t kNearLimitShare = 16;

}  // namespace

SpillResult Spiller::move_out(std::vector<Move> moves, const SpillPlace& where, PageReservation* into) {
  if (moves.empty()) return {};
  const SpillResult out =
      where.tier == Tier::kNvme ? to_file(moves, where, into) : to_memory(moves, where, into);
  migration_.end(moves);
  return out;
}

HostMemory::Amount Spiller::host_amount_of(const std::vector<Move>& moves) const {
  HostMemory::Amount amount;
  for (const Move& move : moves)
    if (move.tier == Tier::kHost) amount += memory_.host().amount_of(move.range.bytes());
  return amount;
}

double Spiller::make_us(const std::vector<Move>& moves) const {
  const double measured = memory_.host().made_bytes_per_us();
  return static_cast<double>(memory_.host().missing_bytes(host_amount_of(moves))) /
         (measured != 0 ? measured : static_cast<double>(costs::kMakeHostBytesPerUs));
}

bool Spiller::begin_to_expect(bool failed) {
  const Locked guard(heap_.lock);
  const uint64_t most = heap_.most_bytes();
  if (heap_.tiers.expects_spill || (!failed && heap_.pages.held() < most - most / kNearLimitShare))
    return false;
  heap_.tiers.expects_spill = true;
  // As much as goes beyond the need; of blocks' sizes nothing is known yet.
  const uint64_t bytes = costs::ahead_bytes(most), chunk = host_chunk_bytes(heap_.page_bytes);
  memory_.host().expect(
      {bytes / chunk, (std::min(bytes, chunk - 1) + heap_.page_bytes - 1) / heap_.page_bytes});
  return true;
}

// When the request has been served: what the driver does then holds it up no longer.
void Spiller::foresee(bool failed) {
  if (heap_.shared.host_memory_need.load(std::memory_order_relaxed) == nullptr) return;
  if (begin_to_expect(failed) || failed) heap_.shared.tell_host_memory_need();
}

SpillResult Spiller::to_memory(std::vector<Move>& moves, const SpillPlace& where, PageReservation* into) {
  SpillResult out;
  SpillPlace left = where;
  memory_.host().expect(host_amount_of(moves));
  {
    const SharedLocked mapping(heap_.mappings_mutex);
    migration_.move_out(moves, [&](Move& move) {
      out.refused = out.refused || memory_.make(left, move.range.bytes(), &move.to) != CUDA_SUCCESS;
      if (out.refused) return false;
      left.most_bytes -= std::min(left.most_bytes, move.range.bytes());
      move.from = migration_.pages_in(move.block, move.range);
      return true;
    });
    out.bytes = settle(moves, into);
  }
  for (const Move& move : moves)
    if (!move.done && !move.to.empty())
      memory_.give_back({.range = move.range, .pages = move.to, .tier = move.tier});
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
    const Pins pins = heap_.shared.pinned();
    for (Move& move : moves) {
      if (pins.cover(move.range.begin, move.range.bytes())) move.done = false;
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
    Arena& arena = heap_.tiling.arena_of(move.block);
    if (!move.done) {
      if (move.common) restore_in(arena, move.range, move.block, heap_.order);
      continue;
    }
    into->add(move.from);
    arena.set_pages(move.range, move.tier == Tier::kNvme ? kPageStored : kPageElsewhere);
    heap_.tiers.spilled.add(move);
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
    migration_.move_out(moves, [&](Move& move) {
      const SpillPlace where{.tier = Tier::kHost, .most_bytes = most_host_bytes};
      if (move.range.bytes() > most_host_bytes ||
          memory_.make(where, move.range.bytes(), &move.to) != CUDA_SUCCESS)
        return false;
      most_host_bytes -= move.range.bytes();
      return true;
    });
    moved = settle_guests(moves);
  }
  for (const Move& move : moves)
    if (!move.to.empty())
      memory_.give_back({.range = move.range,
                         .pages = move.done ? move.from : move.to,
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
