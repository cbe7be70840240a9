#include "tools/spillway/history/moment.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace spillway::tools {
namespace {

// Walks from the snapshot's state into the past.
class Backwards {
 public:
  explicit Backwards(const DeviceHistory& device) : rounding_(device.rounding) {
    for (const HistorySegment& segment : device.segments) {
      pieces_[segment.address] = {segment.size, {segment.pool, segment.stream}};
      for (const HistoryBlock& block : segment.blocks) hold(block);
    }
    for (const HistoryBlock& block : device.loose_blocks) hold(block);
  }

  void undo(const HistoryEvent& event) {
    switch (event.action) {
      case Action::kAllocate:
        contradictions_ += 1 - blocks_.erase(event.address);
        return;
      case Action::kFreeRequested:
        return set_pending(event, false);
      case Action::kFreeCompleted:
        return bring_back(event);
      case Action::kSegmentAllocate:
        return take_piece(event.address, event.size);
      case Action::kSegmentFree:
        pieces_[event.address] = {event.size, {event.pool, event.stream}};
        return;
      case Action::kOutOfMemory:
      case Action::kOther:
        return;
    }
  }

  Moment moment(size_t event) const {
    Moment moment;
    moment.event = event;
    moment.contradictions = contradictions_;
    uint64_t end = 0;
    for (const auto& [address, block] : blocks_) {
      // Of a damaged history, blocks may overlap: the first of them counts.
      if (address < end) {
        ++moment.contradictions;
        continue;
      }
      moment.blocks.push_back(block);
      end = address + std::min(block.size, UINT64_MAX - address);
    }
    measure(&moment);
    return moment;
  }

 private:
  void hold(const HistoryBlock& block) {
    if (block.state == BlockState::kFree) return;
    blocks_[block.address] = {
        block.address, block.size, block.requested, block.stack, block.state == BlockState::kPendingFree,
        kBeforeHistory};
  }

  void set_pending(const HistoryEvent& event, bool pending) {
    const auto block = blocks_.find(event.address);
    if (block == blocks_.end())
      ++contradictions_;
    else
      block->second.pending = pending;
  }

  void bring_back(const HistoryEvent& event) {
    const auto [block, is_new] = blocks_.try_emplace(event.address);
    if (!is_new) ++contradictions_;
    block->second = {event.address, rounded_block(event.size, rounding_), event.size, 0, true,
                     kBeforeHistory};
  }

  // A segment goes as a whole; of an expandable one a part may go, and it may have come in several.
  void take_piece(uint64_t address, uint64_t bytes) {
    while (bytes > 0) {
      auto piece = pieces_.upper_bound(address);
      if (piece == pieces_.begin()) return void(++contradictions_);
      --piece;
      const uint64_t start = piece->first;
      const auto [size, owner] = piece->second;
      if (address - start >= size) return void(++contradictions_);
      const uint64_t taken = std::min(bytes, size - (address - start));
      const uint64_t behind = size - (address - start) - taken;
      if (address == start)
        pieces_.erase(piece);
      else
        piece->second.bytes = address - start;
      if (behind > 0) pieces_[address + taken] = {behind, owner};
      address += taken;
      bytes -= taken;
    }
  }

  // A block may lie across pieces that touch: parts of an expandable segment. Where no piece is known, each
  // block is memory of its own.
  void measure(Moment* moment) const {
    for (const HeldBlock& block : moment->blocks) moment->reserved += block.size;
    auto block = moment->blocks.begin();
    uint64_t covered = 0;  // up to where blocks reach
    uint64_t told = 0;     // that pieces have
    for (const auto& [start, piece] : pieces_) {
      told += piece.bytes;
      moment->pieces.push_back({start, piece.bytes, piece.owner});
      IdleMemory& idle = moment->idle[piece.owner];
      const auto leave = [&](uint64_t hole) {
        idle.bytes += hole;
        moment->reserved += hole;
        idle.largest = std::max(idle.largest, hole);
      };
      const uint64_t end = start + std::min(piece.bytes, UINT64_MAX - start);
      uint64_t free_from = std::max(start, covered);
      for (; block != moment->blocks.end() && block->address < end; ++block) {
        if (block->address > free_from) leave(block->address - free_from);
        const uint64_t block_end = block->address + std::min(block->size, UINT64_MAX - block->address);
        free_from = covered = std::max(free_from, block_end);
      }
      if (end > free_from) leave(end - free_from);
    }
    // Of a damaged history, blocks may lie in no piece, and pieces overlap.
    if (!pieces_.empty() && told != moment->reserved) ++moment->contradictions;
  }

  const uint64_t rounding_;
  std::map<uint64_t, HeldBlock> blocks_;
  struct Piece {
    uint64_t bytes = 0;
    PoolAndStream owner;
  };
  std::map<uint64_t, Piece> pieces_;  // by address
  uint64_t contradictions_ = 0;
};

// Who allocated each block, and when: the last allocation at its address before the moment.
void find_births(const DeviceHistory& device, Moment* moment) {
  std::unordered_map<uint64_t, HeldBlock*> by_address;
  by_address.reserve(moment->blocks.size());
  for (HeldBlock& block : moment->blocks) by_address[block.address] = &block;
  for (size_t i = 0; i < moment->event; ++i) {
    const HistoryEvent& event = device.events[i];
    if (event.action != Action::kAllocate) continue;
    const auto found = by_address.find(event.address);
    if (found == by_address.end()) continue;
    found->second->born = i;
    found->second->stack = event.stack;
  }
}

}  // namespace

uint64_t rounded_block(uint64_t bytes, uint64_t rounding) {
  return bytes > UINT64_MAX - rounding ? bytes : (bytes + rounding - 1) / rounding * rounding;
}

Moment moment_at(const DeviceHistory& device, size_t event) {
  Backwards backwards(device);
  for (size_t i = device.events.size(); i > event; --i) backwards.undo(device.events[i - 1]);
  Moment moment = backwards.moment(std::min(event, device.events.size()));
  find_births(device, &moment);
  return moment;
}

size_t peak_of(const DeviceHistory& device) {
  // What was there before the history is a constant, which does not move the peak.
  Level in_use;
  int64_t most = 0;
  size_t peak = 0;
  for (size_t i = 0; i < device.events.size(); ++i) {
    in_use.take_in(device.events[i]);
    if (in_use.bytes() <= most) continue;
    most = in_use.bytes();
    peak = i + 1;
  }
  return peak;
}

}  // namespace spillway::tools
