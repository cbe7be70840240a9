// A place for a request that no free block fits, and pages behind it.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Ownership: place and pages are
// the request's until it is served or released. Errors: kShort where there is no memory; an error of the
// driver's that more memory does not mend is kFailed, and stands in the request. Either leaves no place
// claimed.
#pragma once
#include <vector>

#include "allocator/pages/supply/page_supply.h"
#include "allocator/request/miss.h"

namespace spillway {

class Growth {
 public:
  Growth(HeapState& heap, Reclaimer& reclaimer, PageSupply& supply)
      : heap_(heap), reclaimer_(reclaimer), supply_(supply) {}

  // A place that was claimed before is kept. False: there is none, or `miss.error` says what went wrong.
  bool claim_place(Miss& miss);
  // Maps pages behind the place and serves the request.
  Served fill(Miss& miss);
  // Pages alone, for a block that has its place.
  Served get_pages(Miss& miss);
  // Others can take from now on what is reserved for it.
  void release(Miss& miss);
  // The count of reused bytes begins anew; see reuse_idle.cpp.
  void forget_reused();

 private:
  bool plan_and_claim(Miss& miss, Arena& arena) SPILLWAY_REQUIRES(heap_.lock);
  uint64_t next_segment_bytes(const Arena& arena);
  CUresult add_segment(Arena& arena, uint64_t size, const char** call);
  Served refused(Miss& miss, CUresult result, const char* call);
  Served supply(Miss& miss, std::span<const uint64_t> runs);
  CUresult map_claim(Miss& miss);
  void undo_map(Miss& miss, std::span<const driver::Page> pages, const AddressRange& failed);
  void finish(Miss& miss);
  void fill_voids(Miss& miss) SPILLWAY_REQUIRES(heap_.lock);
  void drop_claim(Miss& miss);

  // reuse_idle.cpp
  void reuse_idle(Miss& miss);
  Block* idle_hole(const Miss& miss, const Pins& pins) SPILLWAY_REQUIRES(heap_.lock);

  HeapState& heap_;
  Reclaimer& reclaimer_;
  PageSupply& supply_;
  uint64_t reused_bytes_ SPILLWAY_GUARDED_BY(heap_.lock) = 0;  // of holes, though the driver had pages
};

}  // namespace spillway
