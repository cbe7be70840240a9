// Makes a block free that was freed earlier and had to wait. Its memory in other tiers is given back, and
// that of common pages with the last block on them.
//
// Thread-safety: any thread, without the heap's lock. Errors: none; what the driver does not unmap is tried
// again by `retry`.
#pragma once
#include "allocator/heap_state.h"
#include "allocator/tiers/tier_memory.h"

namespace spillway {

class BlockReleaser {
 public:
  BlockReleaser(HeapState& heap, TierMemory& memory) : heap_(heap), memory_(memory) {}

  // A block that is moved at the moment becomes free at the end of the move.
  void release(Block* block);
  // Of a block that the caller has claimed; see SpilledBlocks.
  void release_claimed(Block* block);
  void retry();
  bool must_retry();
  // Everything that lies elsewhere. When nothing runs any more.
  void end();

 private:
  bool unmap_pieces(Block* block);
  bool begin_to_tell(Block* block);
  bool finish(Block* block);
  void put_back(Block* block, uint64_t order) SPILLWAY_REQUIRES(heap_.lock);
  void forget_pages(Arena& arena, const Piece& piece) SPILLWAY_REQUIRES(heap_.lock);

  HeapState& heap_;
  TierMemory& memory_;
};

}  // namespace spillway
