// The pages of one device, and what may be held of it: pages behind addresses, spare ones that are mapped
// nowhere, and those that requests have reserved. A page is promised here before the driver creates it, and
// taken off here after the driver has released it.
//
// Thread-safety: none but the budget's; the heap's lock guards it. Ownership: of the spare pages. Invariant:
// held = mapped + spare + reserved. Errors: `promise` is false where there is no room, and nothing changes.
// Units: bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "allocator/pages/quota.h"
#include "allocator/pages/supply/page_reservation.h"

namespace spillway {

class PagePool {
 public:
  using Pages = std::vector<driver::Page>;

  explicit PagePool(const Quota& quota) : quota_(quota) {}

  Quota& quota() { return quota_; }
  const Quota& quota() const { return quota_; }
  uint64_t held() const { return quota_.held(); }
  uint64_t peak_held() const { return peak_held_; }
  uint64_t mapped() const { return mapped_; }
  uint64_t spare() const { return spare_bytes_; }
  // Spare and reserved together.
  uint64_t unmapped() const { return spare() + reserved_; }
  // A reservation's pages and the spare ones; and with the pages that the driver may still create.
  uint64_t at_hand(const PageReservation& own) const { return own.in_pages() + spare(); }
  uint64_t obtainable(const PageReservation& own) const {
    return at_hand(own) + own.promised_bytes + quota_.room();
  }

  // Spare pages of at most `largest` bytes each, until the reservation has `bytes` of pages or none fits.
  void reserve_spare(PageReservation* own, uint64_t bytes, uint64_t largest);
  // Budget for pages to create.
  [[nodiscard]] bool promise(PageReservation* own, uint64_t bytes);
  void take_promise_back(PageReservation* own);
  // Its pages become spare, and its promises end.
  void put_back(PageReservation* own);

  // Reserved pages are mapped; mapped pages are reserved.
  void map(uint64_t bytes) { mapped_ += bytes, reserved_ -= bytes; }
  void unmap(uint64_t bytes) { mapped_ -= bytes, reserved_ += bytes; }
  // An allocation of the driver's own took what was promised; and one is gone.
  void map_promised(PageReservation* own, uint64_t bytes);
  void allocation_is_gone(uint64_t bytes) { mapped_ -= bytes, quota_.give_back(bytes); }
  // Of a pool's own source: room for a segment of `bytes`, in place of what was promised; it is made; and it
  // is the source's again, after its bytes were unmapped.
  [[nodiscard]] bool set_aside_for_source(PageReservation* own, uint64_t bytes);
  void segment_is_made(PageReservation* own, uint64_t bytes);
  void segment_is_gone(uint64_t bytes) { reserved_ -= bytes, quota_.give_back_of_source(bytes); }
  // Called once pages are there: a promise may be broken.
  void note_peak() { peak_held_ = std::max(peak_held_, quota_.held()); }
  void reset_peak() { peak_held_ = quota_.held(); }

  // Spare pages to be released, until they have `bytes`; they count as reserved.
  Pages take_spare(uint64_t bytes, Round round = Round::kUp);
  // Of reserved pages `released` bytes are the driver's again, and `kept` are spare.
  void settle_release(uint64_t released, const Pages& kept);
  const Pages& spare_pages() const { return spare_; }

 private:
  void keep(const Pages& pages);

  Quota quota_;
  uint64_t mapped_ = 0, reserved_ = 0, spare_bytes_ = 0, peak_held_ = 0;
  Pages spare_;
};

}  // namespace spillway
