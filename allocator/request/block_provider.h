// Serves a request that the fast path did not: from free blocks, from new pages, from what could be
// collected.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Errors: kShort where there is
// no memory without a strategy; kFailed with the driver's error in the request.
#pragma once
#include "allocator/accounting/journal.h"
#include "allocator/request/growth.h"

namespace spillway {

class BlockProvider {
 public:
  BlockProvider(HeapState& heap, Reclaimer& reclaimer, Growth& growth)
      : heap_(heap), reclaimer_(reclaimer), growth_(growth) {}

  // From free memory and from what is reserved for it.
  Served serve(Miss& miss);
  // The same, and after it what costs nobody anything: idle allocations of released pools, memory that the
  // framework only keeps for others, free blocks of pools that lend.
  Served serve_or_collect(Miss& miss);

 private:
  // From a free block of the request's own stream and pool. `arena`: where it looked.
  bool serve_from_own(Miss& miss, bool small, Arena** arena);
  bool take_hole(Miss& miss, Arena& arena, journal::BlockRecord* served) SPILLWAY_REQUIRES(heap_.lock);
  // Has the framework let go of what it only keeps for others. False: it was not asked.
  bool collect(const Miss& miss);
  bool borrow(Miss& miss);
  uint64_t left_to_libraries() const;
  void look_beside_reserve(uint64_t size);

  HeapState& heap_;
  Reclaimer& reclaimer_;
  Growth& growth_;
};

}  // namespace spillway
