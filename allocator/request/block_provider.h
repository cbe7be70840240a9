// Serves a request that the fast path did not: from free blocks, from new pages, from what could be
// collected.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Errors: kShort where there is
// no memory without a strategy; kFailed with the driver's error in the request.
#pragma once
#include "allocator/accounting/journal.h"
#include "allocator/request/growth.h"
#include "allocator/segments/allocations.h"

namespace spillway {

class BlockProvider {
 public:
  BlockProvider(HeapState& heap, Reclaimer& reclaimer, Growth& growth, Allocations& allocations)
      : heap_(heap), reclaimer_(reclaimer), growth_(growth), allocations_(allocations) {}

  // From free memory and from what is reserved for it. For a pool with a source of its own, quota for a
  // segment will do.
  Served serve(Miss& miss);
  // The same, and after it what costs nobody anything: idle allocations of released pools, memory that the
  // framework only keeps for others, free blocks of pools that lend.
  Served serve_or_collect(Miss& miss);
  // To be called before a handler runs: a pool's own source says then what it will be asked.
  void look_at_source(Miss& miss) { allocations_.look_at_source(miss); }
  // Has the source make the segment, without a lock. Where it refuses, it is asked again when nothing is only
  // cached any more, as PyTorch's allocator does.
  Served ask_source(Miss& miss);

 private:
  // From a free block of the request's own stream and pool. `arena`: where it looked.
  bool serve_from_own(Miss& miss, bool small, Arena** arena);
  bool take_hole(Miss& miss, Arena& arena, journal::BlockRecord* served) SPILLWAY_REQUIRES(heap_.lock);
  // Has the framework let go of what it only keeps for others, and gives sources back what is theirs. False:
  // neither could be asked.
  bool collect(const Miss& miss);
  uint64_t release_cached(const Miss& miss);
  bool borrow(Miss& miss);
  uint64_t left_to_libraries() const;
  void look_beside_reserve(uint64_t size);

  HeapState& heap_;
  Reclaimer& reclaimer_;
  Growth& growth_;
  Allocations& allocations_;
};

}  // namespace spillway
