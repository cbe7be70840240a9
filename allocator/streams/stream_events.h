// Events on streams, in the order of their recording, and the blocks that wait for them: each for all of its
// own.
//
// Thread-safety: none; the mutex of the pending frees guards it. Ownership: of the events until they have
// passed. Errors: a stream on which no event can be recorded is waited for, or all of its device; if that
// fails too, the context is lost, and the block waits for ever.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "allocator/pages/device.h"
#include "allocator/streams/other_contexts.h"
#include "allocator/tiling/block.h"

namespace spillway {

class StreamEvents {
 public:
  using Passed = std::function<void(Block*)>;
  struct Mark {
    RecordedStream on;
    CUevent event;
    uint64_t sequence;
  };

  StreamEvents(Device& device, OtherContexts& contexts) : device_(device), contexts_(contexts) {}

  // An event on each stream. True: there is nothing to wait for. `drain` waits for the whole of the block's
  // device.
  bool add(Block* block, const std::vector<RecordedStream>& streams, const std::function<CUresult()>& drain);
  // `passed` is called for each block of which no event is left.
  void poll(const Passed& passed);
  std::optional<Mark> oldest() const;
  // Of a mark whose event has passed; nothing if somebody saw it pass before.
  void pass(const Mark& mark, const Passed& passed);

  // Nobody waits any more. Not in a forked child.
  void end();

  bool empty() const { return by_stream_.empty(); }
  bool any_block(const std::function<bool(Block*)>& predicate) const {
    for (const auto& [block, unused] : outstanding_)
      if (predicate(block)) return true;
    return false;
  }

 private:
  struct Queued {
    CUevent event;
    Block* block;
    uint64_t sequence;
  };
  using Queue = std::deque<Queued>;
  void pass_first(const RecordedStream& on, Queue& queue, const Passed& passed);

  Device& device_;
  OtherContexts& contexts_;
  std::map<RecordedStream, Queue> by_stream_;  // none is empty
  std::unordered_map<Block*, unsigned> outstanding_;
  uint64_t sequence_ = 0;
};

}  // namespace spillway
