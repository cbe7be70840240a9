// The streams, other than its own, that a live block was recorded on.
//
// Thread-safety: guarded by the heap's lock. Errors: none.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "allocator/streams/recorded_stream.h"
#include "allocator/tiling/block.h"

namespace spillway {

class RecordedStreams {
 public:
  void add(const Block* block, const RecordedStream& on) {
    std::vector<RecordedStream>& streams = by_block_[block];
    if (std::find(streams.begin(), streams.end(), on) == streams.end()) streams.push_back(on);
  }
  std::vector<RecordedStream> take(const Block* block) {
    auto found = by_block_.extract(block);
    return found.empty() ? std::vector<RecordedStream>{} : std::move(found.mapped());
  }
  bool uses(StreamId stream) const {
    return std::any_of(by_block_.begin(), by_block_.end(), [&](const auto& recorded) {
      return std::ranges::find(recorded.second, stream, &RecordedStream::stream) != recorded.second.end();
    });
  }
  void stream_ends(StreamId stream) {
    for (auto& [block, streams] : by_block_) end_stream(streams, stream);
  }
  bool contains(const Block* block) const { return by_block_.contains(block); }

 private:
  std::unordered_map<const Block*, std::vector<RecordedStream>> by_block_;
};

}  // namespace spillway
