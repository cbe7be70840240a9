// What lies in another tier comes back when the device has had room for long.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {
namespace {

// A share of the limit stays free.
constexpr uint64_t kMarginShare = 20;

}  // namespace

// What the program's blocks take of the device.
uint64_t DeviceHeap::need() const {
  const uint64_t all = usage_.live().bytes + usage_.pending().bytes;
  return all > elsewhere_bytes_ ? all - elsewhere_bytes_ : 0;
}

void DeviceHeap::note_need() {
  if (!spilled_.empty()) needs_.note(order_, need());
}

uint64_t DeviceHeap::returnable_here() const {
  const uint64_t most = std::min(quota_.limit(), device_->total_bytes());
  const uint64_t taken = needs_.peak() + most / kMarginShare;
  return spilled_.empty() || !needs_.quiet(order_) || taken > most ? 0 : most - taken;
}

// What lies in a file comes back when the program says that it uses it.
bool DeviceHeap::returns_by_itself(const Spilled& there) {
  return !there.moving && !there.pieces.empty() && there.pieces.back().tier != Tier::kNvme;
}

uint64_t DeviceHeap::returnable_bytes() {
  if (forked()) return 0;
  const Locked guard(lock_);
  if (spilled_.empty()) return 0;
  const uint64_t room = returnable_here();
  const Pins pins = allocator_.pins();
  for (const auto& [block, there] : spilled_)
    if (block->state == BlockState::kLive && returns_by_itself(there) &&
        !pins.cover(block->address, block->size) && there.pieces.back().range.bytes() <= room)
      return room;
  return 0;
}

// The last piece that went is the first to come: what stays elsewhere remains the block's end.
std::vector<DeviceHeap::Move> DeviceHeap::choose_returns(uint64_t most_bytes) {
  std::vector<std::pair<double, Block*>> blocks;
  const Pins pins = allocator_.pins();
  for (const auto& [block, there] : spilled_)
    if (block->state == BlockState::kLive && returns_by_itself(there) &&
        !pins.cover(block->address, block->size))
      blocks.emplace_back(heat(block) / bytes_per_us(there.pieces.back().tier, there.pieces.back().peer),
                          block);
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Move> moves;
  for (const auto& [unused, block] : blocks) {
    const Piece& piece = spilled_[block].pieces.back();
    if (piece.range.bytes() > most_bytes) continue;
    most_bytes -= piece.range.bytes();
    moves.push_back({.block = block,
                     .range = piece.range,
                     .was = piece.tier,
                     .from = {{piece.handle, piece.range.bytes()}}});
  }
  return moves;
}

void DeviceHeap::postpone_return() {
  const Locked guard(lock_);
  needs_.postpone(order_);
}

uint64_t DeviceHeap::unspill() {
  if (forked()) return 0;
  const Device::Scope scope(*device_);
  std::vector<Move> moves;
  {
    const Locked guard(lock_);
    moves = choose_returns(returnable_here());
    mark_moving(moves);
  }
  const uint64_t bytes = unspill_moves(moves);
  pinned_host_cache_.shrink(0);
  if (bytes == 0) postpone_return();  // not again at once
  return bytes;
}

// On pages that are idle, spare or new.
uint64_t DeviceHeap::unspill_moves(std::vector<Move>& moves) {
  PageReservation pages(page_bytes_);
  std::vector<IdleRange> victims;
  {
    const Locked guard(lock_);
    all_is_drained();
    const uint64_t needed = bytes_of(moves), spare = spare_.size() * page_bytes_;
    victims = take_idle(needed > spare ? needed - spare : 0, true);
  }
  hold(victims, pages, IdlePages::kKeep);
  const uint64_t bytes = move_in(moves, pages);
  const Locked guard(lock_);
  reserved_bytes_ -= pages.bytes();
  quota_.give_back(pages.promised_bytes);
  spare_.insert(spare_.end(), pages.pages.begin(), pages.pages.end());
  needs_.moved_in(bytes);
  return bytes;
}

uint64_t DeviceHeap::move_in(std::vector<Move>& moves, PageReservation& pages) {
  if (moves.empty()) return 0;
  uint64_t bytes = 0;
  {
    const SharedLocked mapping(mappings_mutex_);
    remap(moves, [&](Move& move) { return provide(move, pages); });
    bytes = settle_in(moves, pages);
  }
  for (const Move& move : moves)
    if (move.done)
      drop_elsewhere({.range = move.range, .handle = move.from.front().handle, .tier = move.was});
  for (const Move& move : moves) end_move(move.block);
  return bytes;
}

// Device pages for what comes back: of those at hand, of spare ones, or new.
bool DeviceHeap::provide(Move& move, PageReservation& pages) {
  const uint64_t bytes = move.range.bytes();
  {
    const Locked guard(lock_);
    while (!spare_.empty() && pages.pages.size() * page_bytes_ < bytes) {
      pages.pages.push_back(spare_.back());
      spare_.pop_back();
      reserved_bytes_ += page_bytes_;
    }
  }
  while (pages.pages.size() * page_bytes_ < bytes) {
    {
      const Locked guard(lock_);
      if (!quota_.draw(page_bytes_)) return false;
      reserved_bytes_ += page_bytes_;
      pages.promised_bytes += page_bytes_;
    }
    CUmemGenericAllocationHandle handle = 0;
    if (device_->create(&handle) != CUDA_SUCCESS) return false;
    pages.promised_bytes -= page_bytes_;
    pages.pages.push_back(handle);
  }
  for (uint64_t at = 0; at < bytes; at += page_bytes_) {
    move.to.push_back({pages.pages.back(), page_bytes_});
    pages.pages.pop_back();
  }
  return true;
}

uint64_t DeviceHeap::settle_in(const std::vector<Move>& moves, PageReservation& pages) {
  const Locked guard(lock_);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) {
      for (const driver::Page& page : move.to) pages.pages.push_back(page.handle);
      continue;
    }
    Arena& arena = *arenas_[move.block->arena];
    uint64_t at = move.range.begin;
    for (const driver::Page& page : move.to) {
      arena.set_page(at, page.handle);
      at += page_bytes_;
    }
    std::vector<Piece>& pieces = spilled_[move.block].pieces;
    remove_piece(pieces.back());
    pieces.pop_back();
    bytes += move.range.bytes();
  }
  mapped_bytes_ += bytes;
  reserved_bytes_ -= bytes;
  return bytes;
}

}  // namespace spillway
