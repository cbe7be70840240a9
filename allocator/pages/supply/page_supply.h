// Gets a reservation the pages that lie behind address ranges: what it has, spare ones and new ones. A handle
// that is too large for all of them goes back to the driver, and comes again as smaller ones.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Ownership: the pages are the
// reservation's, whatever happens. Errors: as Supplied says. Units: bytes.
#pragma once
#include <span>

#include "allocator/pages/reclaimer.h"

namespace spillway {

enum class Supplied : uint8_t {
  kYes,
  kNoRoom,   // the quota does not last
  kRefused,  // the driver created none
};

class PageSupply {
 public:
  PageSupply(HeapState& heap, Reclaimer& reclaimer) : heap_(heap), reclaimer_(reclaimer) {}

  // From here on the reservation's last pages, from the back, fill runs of so many bytes one after the other.
  Supplied fill(PageReservation* own, std::span<const uint64_t> runs, CUresult* error);

 private:
  struct Layout;
  bool reserve(PageReservation* own, std::span<const uint64_t> runs);
  enum class From : uint8_t { kQuota, kHandles };
  bool make_room(PageReservation* own, Layout& layout, From from);
  CUresult create(PageReservation* own, Layout& layout);
  uint64_t next_size(uint64_t most_bytes);
  CUresult create_one(uint64_t most_bytes, driver::Page* page);

  HeapState& heap_;
  Reclaimer& reclaimer_;
};

}  // namespace spillway
