// Live blocks' pages go to another tier: what a request lacks, what goes for it, and where to.
#include "allocator/tiers/spill.h"

#include <algorithm>
#include <utility>

#include "allocator/heap.h"

namespace spillway {
namespace {

// The device stands still for a spill, so more goes than is needed: at most this, and a share of the limit.
constexpr uint64_t kMostAhead = 256 << 20, kAheadShare = 32;

}  // namespace

// Not of a pool that has not been released: a graph may use its holes again.
void DeviceHeap::all_is_drained() {
  for (const auto& arena : arenas_)
    if (arena->gives_pages()) arena->drained_order = std::max(arena->drained_order, order_);
}

// The pages that the waiting request lacks where it needs the fewest. None: it lacks none, or has no place.
std::optional<DeviceHeap::Shortfall> DeviceHeap::shortfall(const Miss& miss) const {
  if (miss.arena->single_handle || fits(miss)) return std::nullopt;
  const uint64_t has = have(miss);
  const std::optional<Placement> place = place_for(miss, has, device_->total_bytes());
  if (!place || place->need_bytes <= has) return std::nullopt;
  return Shortfall{*place, place->need_bytes - has};
}

uint64_t DeviceHeap::bytes_of(const std::vector<Move>& moves) {
  uint64_t bytes = 0;
  for (const Move& move : moves) bytes += move.range.bytes();
  return bytes;
}

SpillEstimate DeviceHeap::estimate_spill(const Miss& miss, uint64_t short_bytes, const SpillPlace& where) {
  SpillEstimate out;
  const Locked guard(lock_);
  const std::optional<Shortfall> missing = shortfall(miss);
  if (!missing) return out;
  const uint64_t idle = idle_bytes().all - missing->place.idle_bytes;
  if (missing->bytes <= idle) return out;
  out.needed_bytes = missing->bytes - idle;
  std::vector<Move> moves = choose_moves(out.needed_bytes, where, UINT64_MAX);
  out.movable_bytes = bytes_of(moves);
  if (out.movable_bytes < out.needed_bytes) return out;
  if (out.movable_bytes > where.most_bytes) {
    if (!where.part) return out;
    moves = choose_moves(out.needed_bytes, where, where.most_bytes);
  }
  out.bytes = bytes_of(moves);
  const double share = static_cast<double>(out.bytes) / static_cast<double>(out.movable_bytes);
  out.useful_bytes = static_cast<uint64_t>(static_cast<double>(short_bytes) * share);
  out.slowdown = slowdown(moves);
  out.bytes_per_us = bytes_per_us(where.tier, where.peer);
  return out;
}

// Nothing may free the pages from here on: who frees the block leaves it to the end of the move.
void DeviceHeap::mark_moving(const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    spilled_[move.block].moving = true;
    move.block->shared |= kSpilled;
  }
}

SpillResult DeviceHeap::spill(Miss& miss, const SpillPlace& where) {
  PageReservation& reservation = miss.reservation;
  if (reservation.claim != nullptr) return {};
  const Device::Scope scope(*device_);
  std::vector<IdleRange> victims;
  std::vector<Move> moves;
  {
    const Locked guard(lock_);
    const std::optional<Shortfall> missing = shortfall(miss);
    if (!missing) return {};
    uint64_t needed = missing->bytes;
    if (where.tier != Tier::kNvme) all_is_drained();
    take_place(miss, missing->place);
    victims = take_idle(needed, true);
    for (const IdleRange& victim : victims) needed -= std::min(needed, victim.range.bytes());
    const uint64_t most = std::min(quota_.limit(), device_->total_bytes());
    if (needed != 0)
      moves = choose_moves(needed + std::min(kMostAhead, most / kAheadShare), where, where.most_bytes);
    mark_moving(moves);
  }
  const uint64_t idle = hold(victims, reservation, IdlePages::kKeep);
  std::vector<CUmemGenericAllocationHandle> pages;
  const SpillResult moved =
      where.tier == Tier::kNvme ? store(moves, where, &pages) : move_out(moves, where, &pages);
  reservation.pages.insert(reservation.pages.end(), pages.begin(), pages.end());
  return {idle + moved.bytes, moved.refused};
}

// The other tier's memory for a range: what an earlier block of that size has left, else new; what others
// have left goes where the budget needs it.
CUresult DeviceHeap::elsewhere(const SpillPlace& where, uint64_t bytes,
                               CUmemGenericAllocationHandle* handle) {
  if (where.tier == Tier::kHost) {
    if (const auto kept = pinned_host_cache_.take(bytes)) {
      *handle = *kept;
      return CUDA_SUCCESS;
    }
    pinned_host_cache_.shrink(where.most_bytes - std::min(where.most_bytes, bytes));
  }
  return device_->create_elsewhere(where.tier, where.peer, bytes, handle);
}

void DeviceHeap::drop_elsewhere(const Piece& piece) {
  if (piece.tier == Tier::kNvme) return give_places(piece.stored);
  if (piece.tier == Tier::kHost) return pinned_host_cache_.keep(piece.range.bytes(), piece.handle);
  device_->release(piece.handle);
}

// The pages of what went, which count as reserved, are in `pages`.
SpillResult DeviceHeap::move_out(std::vector<Move>& moves, const SpillPlace& where,
                                 std::vector<CUmemGenericAllocationHandle>* pages) {
  SpillResult out;
  if (moves.empty()) return out;
  SpillPlace left = where;
  {
    const SharedLocked mapping(mappings_mutex_);
    remap(moves, [&](Move& move) {
      CUmemGenericAllocationHandle handle = 0;
      out.refused = out.refused || elsewhere(left, move.range.bytes(), &handle) != CUDA_SUCCESS;
      if (out.refused) return false;
      left.most_bytes -= std::min(left.most_bytes, move.range.bytes());
      move.from = pages_in_range(move.block, move.range);
      move.to = {{handle, move.range.bytes()}};
      return true;
    });
    out.bytes = settle_out(moves, pages);
  }
  for (const Move& move : moves)
    if (!move.done && !move.to.empty())
      drop_elsewhere({.range = move.range, .handle = move.to.front().handle, .tier = move.tier});
  for (const Move& move : moves) end_move(move.block);
  return out;
}

uint64_t DeviceHeap::settle_out(const std::vector<Move>& moves,
                                std::vector<CUmemGenericAllocationHandle>* pages) {
  const Locked guard(lock_);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) continue;
    Arena& arena = *arenas_[move.block->arena];
    for (const driver::Page& page : move.from) pages->push_back(page.handle);
    for (uint64_t at = move.range.begin; at < move.range.end; at += page_bytes_)
      arena.set_page(at, move.tier == Tier::kNvme ? kPageStored : kPageElsewhere);
    add_piece(move.block, {.range = move.range,
                           .handle = move.to.empty() ? 0 : move.to.front().handle,
                           .tier = move.tier,
                           .peer = move.peer,
                           .stored = move.stored});
    bytes += move.range.bytes();
  }
  mapped_bytes_ -= bytes;
  reserved_bytes_ += bytes;
  if (bytes == 0) return 0;
  needs_.moved_out(order_, need());
  set_slow(kSlowSpilled);
  return bytes;
}

void DeviceHeap::add_piece(Block* block, const Piece& piece) {
  spilled_[block].pieces.push_back(piece);
  elsewhere_bytes_ += piece.range.bytes();
  if (piece.tier == Tier::kPeer) allocator_.count_guest(piece.peer, piece.range.bytes());
}

void DeviceHeap::remove_piece(const Piece& piece) {
  elsewhere_bytes_ -= piece.range.bytes();
  uncount_guest(piece);
}

void DeviceHeap::uncount_guest(const Piece& piece) {
  if (piece.tier == Tier::kPeer && !piece.gone) allocator_.count_guest(piece.peer, 0 - piece.range.bytes());
}

// A block that lies whole on the device again is like any other; one that was freed meanwhile goes now.
void DeviceHeap::end_move(Block* block) {
  bool freed = false;
  {
    const Locked guard(lock_);
    const auto there = spilled_.find(block);
    freed = there->second.freed;
    there->second.moving = freed;
    if (there->second.pieces.empty()) {
      block->shared = static_cast<uint8_t>(block->shared & ~kSpilled);
      spilled_.erase(there);
    }
    if (spilled_.empty()) clear_slow(kSlowSpilled);
  }
  moves_ended_.fetch_add(1);
  moves_ended_.notify_all();
  if (freed) complete_claimed(block);
}

void set_pins(Allocator& allocator, Pins (*pins)()) noexcept {
  allocator.set_pins(pins);
}

void touch(Allocator& allocator, uint64_t address) noexcept {
  allocator.touch(address);
}

uint64_t pinned_host_cache_bytes(Allocator& allocator, DeviceId except) noexcept {
  uint64_t bytes = 0;
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (DeviceId{i} != except && allocator.uses(DeviceId{i}))
      bytes += allocator.heap(DeviceId{i}, nullptr, nullptr)->pinned_host_cache_bytes();
  return bytes;
}

uint64_t spilled_bytes(Allocator& allocator, Tier tier) noexcept {
  uint64_t bytes = 0;
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}))
      bytes += allocator.heap(DeviceId{i}, nullptr, nullptr)->spilled_bytes(tier);
  return bytes;
}

uint64_t returnable_bytes(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->returnable_bytes() : 0;
}

void postpone_return(Allocator& allocator, DeviceId device) noexcept {
  if (allocator.uses(device)) allocator.heap(device, nullptr, nullptr)->postpone_return();
}

uint64_t unspill(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->unspill() : 0;
}

}  // namespace spillway
