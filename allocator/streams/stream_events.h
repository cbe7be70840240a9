// Events on streams, in the order of their recording, and the blocks that wait for them: each for all of its
// own.
//
// Thread-safety: none; the mutex of the pending frees guards it. Ownership: of the events until they have
// passed. Errors: a stream on which no event can be recorded is waited for; if that fails too, the context is
// lost, and the block waits for ever.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "allocator/pages/device.h"
#include "allocator/tiling/block.h"

namespace spillway {

class StreamEvents {
 public:
  using Passed = std::function<void(Block*)>;
  struct Mark {
    StreamId stream;
    CUevent event;
    uint64_t sequence;
  };

  explicit StreamEvents(Device& device) : device_(device) {}

  // An event on each stream. True: there is nothing to wait for. `drain` waits for the whole device.
  bool add(Block* block, const std::vector<StreamId>& streams, const std::function<CUresult()>& drain);
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
  void pass_first(Queue& queue, const Passed& passed);

  Device& device_;
  std::map<StreamId, Queue> by_stream_;  // none is empty
  std::unordered_map<Block*, unsigned> outstanding_;
  uint64_t sequence_ = 0;
};

}  // namespace spillway
