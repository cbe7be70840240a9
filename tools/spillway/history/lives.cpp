#include "tools/spillway/history/lives.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tools/spillway/history/moment.h"

namespace spillway::tools {
namespace {

class Walk {
 public:
  explicit Walk(const DeviceHistory& device) : rounding_(device.rounding) {
    lives_.moments = device.events.size() + 1;
    open_end_ = lives_.moments;
    for (const HistorySegment& segment : device.segments) {
      segments_[segment.address] = {segment.address, segment.size, segment.stream, segment.pool, 0,
                                    open_end_};
      for (const HistoryBlock& block : segment.blocks) open_block_of_file(block);
    }
    for (const HistoryBlock& block : device.loose_blocks) open_block_of_file(block);
    for (uint64_t i = device.events.size(); i > 0; --i) undo(device.events[i - 1], i);
  }

  Lives finish() {
    for (const auto& [address, block] : blocks_) lives_.blocks.push_back(block);
    for (const auto& [address, segment] : segments_) lives_.segments.push_back(segment);
    const auto by_birth = [](const auto& a, const auto& b) {
      return a.from != b.from ? a.from < b.from : a.address < b.address;
    };
    std::sort(lives_.blocks.begin(), lives_.blocks.end(), by_birth);
    std::sort(lives_.segments.begin(), lives_.segments.end(), by_birth);
    return std::move(lives_);
  }

 private:
  void open_block_of_file(const HistoryBlock& block) {
    if (block.state == BlockState::kFree) return;
    BlockLife life{block.address, block.size, block.requested, block.stack, 0, open_end_, open_end_};
    if (block.state == BlockState::kPendingFree) life.pending = open_end_ - 1;
    blocks_[block.address] = life;
  }

  // `after`: the first moment that saw the event.
  void undo(const HistoryEvent& event, uint64_t after) {
    switch (event.action) {
      case Action::kAllocate:
        return close_block(event, after);
      case Action::kFreeRequested:
        if (const auto block = blocks_.find(event.address); block != blocks_.end())
          block->second.pending = after;
        return;
      case Action::kFreeCompleted:
        return open_block(event, after);
      case Action::kSegmentAllocate:
        return cut_segment(event.address, event.size, after);
      case Action::kSegmentFree:
        segments_[event.address] = {event.address, event.size, event.stream, event.pool, 0, after};
        return;
      case Action::kOutOfMemory:
      case Action::kOther:
        return;
    }
  }

  void open_block(const HistoryEvent& event, uint64_t after) {
    const auto [block, is_new] = blocks_.try_emplace(event.address);
    if (!is_new) emit(block->second, after);
    block->second = {event.address, rounded_block(event.size, rounding_), event.size, 0, 0, after, after};
  }

  void close_block(const HistoryEvent& event, uint64_t after) {
    const auto block = blocks_.find(event.address);
    if (block == blocks_.end()) return;
    block->second.stack = event.stack;
    emit(block->second, after);
    blocks_.erase(block);
  }

  void emit(BlockLife life, uint64_t from) {
    life.from = from;
    life.pending = std::clamp(life.pending, from, life.until);
    lives_.blocks.push_back(life);
  }

  // What was mapped at once may have been unmapped in parts, and the other way round.
  void cut_segment(uint64_t address, uint64_t size, uint64_t from) {
    const uint64_t end = address + std::min(size, UINT64_MAX - address);
    auto piece = segments_.lower_bound(address);
    if (piece != segments_.begin() && end_of(std::prev(piece)->second) > address) --piece;
    while (piece != segments_.end() && piece->second.address < end) {
      const SegmentLife whole = piece->second;
      piece = segments_.erase(piece);
      const uint64_t start = std::max(whole.address, address), stop = std::min(end_of(whole), end);
      add_part(whole, whole.address, start);
      SegmentLife part = whole;
      part.address = start, part.size = stop - start, part.from = from;
      lives_.segments.push_back(part);
      add_part(whole, stop, end_of(whole));
    }
  }

  void add_part(SegmentLife whole, uint64_t start, uint64_t stop) {
    if (start >= stop) return;
    whole.address = start, whole.size = stop - start;
    segments_[start] = whole;
  }

  static uint64_t end_of(const SegmentLife& life) {
    return life.address + std::min(life.size, UINT64_MAX - life.address);
  }

  const uint64_t rounding_;
  Lives lives_;
  uint64_t open_end_ = 0;
  std::unordered_map<uint64_t, BlockLife> blocks_;  // by address; not born yet on the way back
  std::map<uint64_t, SegmentLife> segments_;
};

}  // namespace

Lives lives_of(const DeviceHistory& device) {
  return Walk(device).finish();
}

}  // namespace spillway::tools
