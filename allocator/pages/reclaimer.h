// Takes idle pages out of the tiling, and gives back to the driver what nothing uses.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Ownership: pages go into the
// reservation that they are taken for. Errors: 0 bytes where nothing could be done; pages that the driver
// does not unmap stay mapped, and those that it does not take back become spare or reserved. Units: bytes.
#pragma once
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/pages/idle_pages.h"
#include "allocator/streams/drain.h"

namespace spillway {

class Reclaimer {
 public:
  Reclaimer(HeapState& heap, Drain& drain) : heap_(heap), drain_(drain) {}

  // Waits for the stream whose arena has the most idle bytes that may still be in use; one that cannot be
  // waited for is skipped from then on. False: none is left.
  bool drain_one(std::vector<Arena*>* skipped);
  // The same again and again until `done`; other threads may free all the time, so not for ever.
  template <typename Done>
  bool drain_until(Done done) {
    std::vector<Arena*> skipped;
    for (int round = 0;; ++round) {
      if (done()) return true;
      if (round == kMostDrains || !drain_one(&skipped)) return false;
    }
  }

  // Waits for every stream that can be waited for.
  void drain_all() {
    drain_until([] { return false; });
  }

  // Unmaps ranges that were taken out, and reserves their pages, or their bytes as budget. Returns the bytes.
  uint64_t hold(std::vector<IdleRange>& idle, IdlePages what, PageReservation* into);
  // The same for who holds `mappings_mutex` already, and keeps the pages.
  void hold_unmapped(std::vector<IdleRange>& idle, PageReservation* into);
  // Idle pages of at least `bytes`, or all that there are, as budget.
  uint64_t reclaim_anything(uint64_t bytes, PageReservation* into);

  // These give memory back to the driver, and return its bytes. Of reserved pages those that it does not take
  // stay in `pages`.
  uint64_t release(PagePool::Pages& pages);
  uint64_t release_spare(uint64_t bytes_asked, Round round = Round::kUp);
  uint64_t release_idle(uint64_t bytes_asked, uint64_t pool, Round round);

 private:
  static constexpr int kMostDrains = 256;

  void unmap(std::vector<IdleRange>& idle);
  void settle(std::vector<IdleRange>& idle, PagePool::Pages* pages);
  // The pages count as reserved from here on.
  PagePool::Pages take_out(std::vector<IdleRange>& idle);

  HeapState& heap_;
  Drain& drain_;
};

}  // namespace spillway
