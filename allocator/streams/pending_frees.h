// Blocks that were freed while other streams may still use them: an event on each of these streams, in the
// order of the frees. When all of a block's events have passed it becomes free.
//
// Thread-safety: any thread, without the heap's lock. Ownership: of the events. Errors: none; a stream on
// which no event can be recorded now, because it is being captured, is tried again at the next poll.
#pragma once
#include <functional>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/streams/drain.h"
#include "allocator/streams/stream_events.h"
#include "allocator/tiers/block_releaser.h"

namespace spillway {

class PendingFrees {
 public:
  PendingFrees(HeapState& heap, Drain& drain, BlockReleaser& releaser)
      : heap_(heap),
        drain_(drain),
        releaser_(releaser),
        contexts_(heap.shared.table, *heap.device),
        events_(*heap.device, contexts_) {}

  // As the program names it now.
  RecordedStream recorded(StreamId stream) const { return contexts_.recorded(stream); }
  void add(Block* block, std::vector<RecordedStream> streams);
  // Whether a request should now and then look at the events.
  bool any() const { return heap_.is_slow(kSlowPending); }
  void poll();
  // True: an event has passed, or somebody saw it pass.
  bool wait_for_oldest();
  // Whether it is true of one of the blocks; asked under the heap's lock.
  bool any_block(const std::function<bool(Block*)>& predicate);
  // The stream is about to be destroyed: nothing is asked of it any more.
  void stream_ends(StreamId stream);
  // Nobody waits any more. Not in a forked child.
  void end();

 private:
  struct Deferred {
    Block* block;
    std::vector<RecordedStream> streams;
  };
  bool captures(const RecordedStream& on);
  bool any_captures(const std::vector<RecordedStream>& streams);
  // True: there is nothing to wait for.
  bool record_uses(Block* block, const std::vector<RecordedStream>& streams) SPILLWAY_REQUIRES(mutex_);
  void retry_deferred() SPILLWAY_REQUIRES(mutex_);

  HeapState& heap_;
  Drain& drain_;
  BlockReleaser& releaser_;
  OtherContexts contexts_;
  Mutex<LockOrder::kPendingFrees> mutex_;
  StreamEvents events_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<Deferred> deferred_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
