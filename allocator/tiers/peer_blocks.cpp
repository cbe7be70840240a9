// Blocks' memory on another device of the process: which devices there are, and making room there again.
#include <algorithm>
#include <set>

#include "allocator/accounting/budget.h"
#include "allocator/heap.h"

namespace spillway {

void DeviceHeap::find_peers() {
  Peers found;
  {
    const SharedLocked mapping(mappings_mutex_);
    found = device_->find_peers();
  }
  const Locked guard(lock_);
  peers_ = std::move(found);
}

Peers DeviceHeap::peers() {
  if (forked()) return {};
  const Locked guard(lock_);
  return peers_;
}

bool DeviceHeap::direct(DeviceId peer) const {
  return std::any_of(peers_.reachable.begin(), peers_.reachable.end(),
                     [&](const Peer& known) { return known.device == peer && known.direct; });
}

uint64_t DeviceHeap::guest_room() {
  const Locked guard(lock_);
  return quota_.room();
}

std::vector<DeviceHeap::Move> DeviceHeap::choose_guests(DeviceId peer, uint64_t bytes) {
  std::vector<Move> moves;
  const Pins pins = allocator_.pins();
  for (const auto& [block, there] : spilled_) {
    if (block->state != BlockState::kLive || there.moving || pins.cover(block->address, block->size))
      continue;
    for (const Piece& piece : there.pieces) {
      if (bytes == 0) return moves;
      if (piece.tier != Tier::kPeer || piece.peer != peer) continue;
      moves.push_back({.block = block,
                       .range = piece.range,
                       .tier = Tier::kHost,
                       .was = Tier::kPeer,
                       .from = {{piece.handle, piece.range.bytes()}}});
      bytes -= std::min(bytes, piece.range.bytes());
    }
  }
  return moves;
}

// Only the last piece of a block that went can come home.
std::vector<DeviceHeap::Move> DeviceHeap::choose_guests_to_return(DeviceId peer, uint64_t bytes) {
  std::vector<Move> moves = choose_guests(peer, UINT64_MAX);
  std::erase_if(moves, [&](const Move& move) SPILLWAY_REQUIRES(lock_) {
    const bool last = spilled_[move.block].pieces.back().range.begin == move.range.begin;
    if (!last || bytes == 0) return true;
    bytes -= std::min(bytes, move.range.bytes());
    return false;
  });
  for (Move& move : moves) move.tier = Tier::kDevice;
  return moves;
}

uint64_t DeviceHeap::evict(DeviceId peer, uint64_t bytes, uint64_t most_host_bytes) {
  if (forked()) return 0;
  const Device::Scope scope(*device_);
  std::vector<Move> moves;
  {
    const Locked guard(lock_);
    moves = choose_guests(peer, bytes);
    mark_moving(moves);
  }
  const uint64_t moved = move_on(moves, most_host_bytes);
  if (moved >= bytes) return moved;
  {
    const Locked guard(lock_);
    moves = choose_guests_to_return(peer, bytes - moved);
    mark_moving(moves);
  }
  return moved + unspill_moves(moves);
}

// To host memory, page for page.
uint64_t DeviceHeap::move_on(std::vector<Move>& moves, uint64_t most_host_bytes) {
  uint64_t bytes = 0;
  {
    const SharedLocked mapping(mappings_mutex_);
    remap(moves, [&](Move& move) {
      CUmemGenericAllocationHandle handle = 0;
      const SpillPlace where{.tier = Tier::kHost, .most_bytes = most_host_bytes};
      if (move.range.bytes() > most_host_bytes ||
          elsewhere(where, move.range.bytes(), &handle) != CUDA_SUCCESS)
        return false;
      most_host_bytes -= move.range.bytes();
      move.to = {{handle, move.range.bytes()}};
      return true;
    });
    bytes = settle_on(moves);
  }
  for (const Move& move : moves)
    if (!move.to.empty())
      drop_elsewhere({.range = move.range,
                      .handle = (move.done ? move.from : move.to).front().handle,
                      .tier = move.done ? Tier::kPeer : Tier::kHost});
  end_moves(moves);
  return bytes;
}

uint64_t DeviceHeap::settle_on(const std::vector<Move>& moves) {
  const Locked guard(lock_);
  uint64_t bytes = 0;
  for (const Move& move : moves) {
    if (!move.done) continue;
    for (Piece& piece : spilled_[move.block].pieces) {
      if (piece.range.begin != move.range.begin) continue;
      allocator_.count_guest(piece.peer, 0 - piece.range.bytes());
      piece.handle = move.to.front().handle;
      piece.tier = Tier::kHost;
    }
    bytes += move.range.bytes();
  }
  return bytes;
}

// Several pieces of a block may have moved: its move ends once.
void DeviceHeap::end_moves(const std::vector<Move>& moves) {
  std::set<Block*> blocks;
  for (const Move& move : moves) blocks.insert(move.block);
  for (Block* block : blocks) end_move(block);
}

Peers peers_of(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->peers() : Peers{};
}

bool has_context(Allocator& allocator, DeviceId device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return allocator.table().cuDevicePrimaryCtxGetState(static_cast<CUdevice>(device), &flags, &active) ==
             CUDA_SUCCESS &&
         active != 0;
}

uint64_t guest_bytes(Allocator& allocator, DeviceId device) noexcept {
  return allocator.guest_bytes(device);
}

uint64_t guest_room_bytes(Allocator& allocator, DeviceId device) noexcept {
  if (allocator.uses(device)) return allocator.heap(device, nullptr, nullptr)->guest_room();
  const uint64_t limit = allocator.default_limit(), guests = allocator.guest_bytes(device);
  const uint64_t own = limit == 0 ? UINT64_MAX : limit - std::min(limit, guests);
  const spillway_budget* budget = allocator.budget();
  return budget == nullptr ? own : std::min(own, budget::room(*budget, static_cast<size_t>(device), 0));
}

uint64_t evict_guests(Allocator& allocator, DeviceId device, uint64_t bytes,
                      uint64_t most_host_bytes) noexcept {
  uint64_t moved = 0;
  for (int i = 0; i < Allocator::kMaxDevices && moved < bytes; ++i) {
    if (!allocator.uses(DeviceId{i}) || DeviceId{i} == device) continue;
    const uint64_t before = spilled_bytes(allocator, Tier::kHost);
    moved += allocator.heap(DeviceId{i}, nullptr, nullptr)->evict(device, bytes - moved, most_host_bytes);
    const uint64_t now = spilled_bytes(allocator, Tier::kHost);
    most_host_bytes -= std::min(most_host_bytes, now > before ? now - before : 0);
  }
  return moved;
}

}  // namespace spillway
