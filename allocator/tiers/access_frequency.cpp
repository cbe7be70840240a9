// How much a block is used, and which would be missed least.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {
namespace {

// Used within so many allocations and frees: what is about to be queued may use it again.
constexpr uint64_t kRecent = 64;
// By fewer no program is judged.
constexpr uint64_t kLeastTouches = 64;
// Uses are learnt from when so much of the limit is held.
constexpr uint64_t kPressurePercent = 85;

constexpr unsigned kUsesBits = 16;
constexpr uint64_t kMostUses = (1u << kUsesBits) - 1;

uint64_t born(const Block* block) {
  return block->history >> kUsesBits;
}

}  // namespace

void DeviceHeap::begin_history(Block* block) {
  block->touched = order_;
  block->history = order_ << kUsesBits;
}

void DeviceHeap::touch(Block* block, uint64_t address) {
  if (forked()) return;
  const Locked guard(lock_);
  if (block->address != address || block->state != BlockState::kLive) return;
  block->touched = order_;
  ++touches_;
  if ((block->history & kMostUses) != kMostUses) ++block->history;
}

// Uses for each place in the order, since uses are learnt. What was never seen in use has the least.
double DeviceHeap::heat(const Block* block) const {
  const uint64_t since = std::max(born(block), learning_since_);
  return static_cast<double>((block->history & kMostUses) + 1) / static_cast<double>(order_ - since + 1);
}

// Asked where the device's memory grows, and when a request fails.
void DeviceHeap::learn_under_pressure(bool failed) {
  {
    const Locked guard(lock_);
    const uint64_t most = std::min(quota_.limit(), device_->total_bytes());
    if (learning_since_ != 0 || order_ == 0 || (!failed && quota_.held() < most / 100 * kPressurePercent))
      return;
    learning_since_ = order_;
  }
  find_peers();
  allocator_.tell_pressure();
}

void DeviceHeap::read_clock() {
  const uint64_t now = device_->time_us();
  const Locked guard(lock_);
  bandwidth_.read_clock(now, order_, spilled_.empty());
}

// The whole pages of a block that are on the device: those behind them went before.
AddressRange DeviceHeap::movable(Block* block, Tier where) const {
  AddressRange range = arenas_[block->arena]->whole_pages(block);
  if (where == Tier::kNvme) {  // only what was registered of it
    const uint64_t end = block->address + registered_.at(block).bytes;
    range.end = std::min(range.end, end / page_bytes_ * page_bytes_);
  }
  if (const auto there = spilled_.find(block); there != spilled_.end() && !there->second.pieces.empty())
    range.end = std::min(range.end, there->second.pieces.back().range.begin);
  range.end = std::max(range.begin, range.end);
  return range;
}

bool DeviceHeap::may_move(Block* block, const Pins& pins) const {
  if (block->state != BlockState::kLive || (block->shared & kOtherProcesses) != 0) return false;
  if (const auto there = spilled_.find(block); there != spilled_.end() && there->second.moving) return false;
  return !pins.cover(block->address, block->size);
}

// What lies in a file must come back before more of the block goes to where it could be used.
bool DeviceHeap::may_go(Block* block, Tier where) const {
  const auto entry = registered_.find(block);
  if (entry != registered_.end() && entry->second.uses != 0) return false;
  if (where == Tier::kNvme) return entry != registered_.end();
  const auto there = spilled_.find(block);
  return there == spilled_.end() || there->second.pieces.empty() ||
         there->second.pieces.back().tier != Tier::kNvme;
}

// Coldest first, and what was used a moment ago last. Of those that were never seen in use the latest first:
// weights are older than activations.
std::vector<Block*> DeviceHeap::cold_blocks(Tier where) const {
  struct Candidate {
    bool recent;
    double heat;
    Block* block;
    bool operator<(const Candidate& other) const {
      if (recent != other.recent) return other.recent;
      return heat < other.heat || (heat == other.heat && born(block) > born(other.block));
    }
  };
  std::vector<Candidate> cold;
  const Pins pins = allocator_.pins();
  for (const auto& arena : arenas_) {
    if (arena->pool() != 0 || arena->single_handle || arena->small()) continue;
    for (const Segment& segment : arena->segments())
      for (Block* block = segment.first; block != nullptr; block = block->next)
        if (may_move(block, pins) && may_go(block, where) && movable(block, where).bytes() != 0)
          cold.push_back({order_ - block->touched < kRecent, heat(block), block});
  }
  std::stable_sort(cold.begin(), cold.end());
  std::vector<Block*> blocks;
  blocks.reserve(cold.size());
  for (const Candidate& candidate : cold) blocks.push_back(candidate.block);
  return blocks;
}

uint64_t DeviceHeap::spilled_here(Tier tier) const {
  uint64_t bytes = 0;
  for (const auto& [block, there] : spilled_)
    for (const Piece& piece : there.pieces)
      bytes += piece.tier == tier && !piece.gone ? piece.range.bytes() : 0;
  return bytes;
}

uint64_t DeviceHeap::spilled_bytes(Tier tier) {
  const Locked guard(lock_);
  return spilled_here(tier);
}

double DeviceHeap::bytes_per_us(Tier tier, DeviceId peer) const {
  return bandwidth_.bytes_per_us(tier, tier == Tier::kPeer && direct(peer));
}

// How far from the device's own pace the uses of what is elsewhere keep the program, with these too. Of a
// program that was only seen to get memory nothing can be said: its device had nothing to do.
double DeviceHeap::slowdown(const std::vector<Move>& moves) const {
  if (bandwidth_.us_per_order() == 0 || touches_ < kLeastTouches) return 1;
  double us = 0;  // on the links, for each place in the order
  for (const auto& [block, there] : spilled_)
    for (const Piece& piece : there.pieces)
      us += heat(block) * static_cast<double>(piece.range.bytes()) / bytes_per_us(piece.tier, piece.peer);
  for (const Move& move : moves)
    us += heat(move.block) * static_cast<double>(move.range.bytes()) / bytes_per_us(move.tier, move.peer);
  return 1 + us / bandwidth_.us_per_order();
}

// The coldest pages of at least `bytes`; fewer where there are not so many.
std::vector<DeviceHeap::Move> DeviceHeap::choose_moves(uint64_t bytes, const SpillPlace& where,
                                                       uint64_t most_bytes) const {
  std::vector<Move> moves;
  bytes = std::min(bytes, most_bytes / page_bytes_ * page_bytes_);
  for (Block* block : cold_blocks(where.tier)) {
    if (bytes == 0) break;
    AddressRange range = movable(block, where.tier);
    const uint64_t pages = std::min(range.bytes() / page_bytes_, (bytes - 1) / page_bytes_ + 1);
    range.begin = range.end - pages * page_bytes_;
    moves.push_back({.block = block, .range = range, .tier = where.tier, .peer = where.peer});
    bytes -= std::min(bytes, range.bytes());
  }
  return moves;
}

}  // namespace spillway
