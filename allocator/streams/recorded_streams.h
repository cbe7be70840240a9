// The streams, other than its own, that a live block was recorded on.
//
// Thread-safety: guarded by the heap's lock. Errors: none.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "allocator/tiling/block.h"
#include "allocator/tiling/stream_knowledge.h"
#include "allocator/units.h"

namespace spillway {

class RecordedStreams {
 public:
  void add(const Block* block, StreamId stream) {
    std::vector<StreamId>& streams = by_block_[block];
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  }
  std::vector<StreamId> take(const Block* block) {
    auto found = by_block_.extract(block);
    return found.empty() ? std::vector<StreamId>{} : std::move(found.mapped());
  }
  bool uses(StreamId stream) const {
    return std::any_of(by_block_.begin(), by_block_.end(), [&](const auto& recorded) {
      return std::find(recorded.second.begin(), recorded.second.end(), stream) != recorded.second.end();
    });
  }
  void stream_ends(StreamId stream) {
    for (auto& [block, streams] : by_block_) std::ranges::replace(streams, stream, kStreamGone);
  }
  bool contains(const Block* block) const { return by_block_.contains(block); }

 private:
  std::unordered_map<const Block*, std::vector<StreamId>> by_block_;
};

}  // namespace spillway
