// Single pages in place of a handle of several that is in use in part, with the same bytes at the same
// addresses: what is idle of it can serve others from then on, and a block on it can go to another tier
// alone.
//
// Thread-safety: any thread, without the heap's lock, in the device's context; nothing runs on the device and
// launches are held. Ownership: the pages come from the reservation, and the handle goes there. Errors: what
// the driver refuses stays as it was, and nothing more is divided. Units: bytes.
#pragma once
#include <vector>

#include "allocator/pages/supply/page_supply.h"
#include "allocator/tiers/choice/choose.h"
#include "allocator/tiers/moving/migration.h"

namespace spillway {

struct PartlyUsedHandle {
  Arena* arena = nullptr;
  AddressRange range;
  uint64_t idle_bytes = 0;  // whole pages
};

// With idle pages in them, the emptiest first.
std::vector<PartlyUsedHandle> partly_idle_handles(const HeapState& heap) SPILLWAY_REQUIRES(heap.lock);
// In which the coldest blocks that may go have pages beside others, until what is wanted could go.
std::vector<PartlyUsedHandle> handles_under_cold_blocks(const HeapState& heap, const SpillPlace& where,
                                                        const Wanted& wanted) SPILLWAY_REQUIRES(heap.lock);

class HandleDivider {
 public:
  HandleDivider(HeapState& heap, Reclaimer& reclaimer, PageSupply& supply, Migration& migration)
      : heap_(heap), reclaimer_(reclaimer), supply_(supply), migration_(migration) {}

  // One after the other, until `idle_bytes` of idle pages are won. Returns how many were.
  uint64_t divide(const std::vector<PartlyUsedHandle>& handles, uint64_t idle_bytes, PageReservation* own);

 private:
  void get_pages_for(const PartlyUsedHandle& first, PageReservation* own);
  bool divide_one(const PartlyUsedHandle& handle, PageReservation* own);

  HeapState& heap_;
  Reclaimer& reclaimer_;
  PageSupply& supply_;
  Migration& migration_;
};

}  // namespace spillway
