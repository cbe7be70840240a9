// Blocks' pages come back to the device.
//
// Thread-safety: any thread, without the heap's lock, in the device's context; nothing runs and launches are
// held. Ownership: pages that were not needed stay in the reservation, or become spare. Errors: what could
// not come stays. Units: bytes.
#pragma once
#include <vector>

#include "allocator/pages/supply/page_supply.h"
#include "allocator/tiers/moving/migration.h"

namespace spillway {

class Unspiller {
 public:
  Unspiller(HeapState& heap, Reclaimer& reclaimer, PageSupply& supply, TierMemory& memory,
            Migration& migration)
      : heap_(heap), reclaimer_(reclaimer), supply_(supply), memory_(memory), migration_(migration) {}

  // What comes back by itself, the most used first, on pages that are idle, spare or new.
  uint64_t unspill();
  // As after an attempt in vain: not again at once.
  void postpone();
  // At least `bytes` of what this device's blocks have on `peer`.
  uint64_t guests_home(DeviceId peer, uint64_t bytes);
  // On which pages blocks come back: those that are reserved, spare or new; or idle ones before new ones.
  enum class Pages : uint8_t { kReserved, kIdleToo };
  // Of claimed blocks; their moves have ended when it returns.
  uint64_t move_in(std::vector<Move>& moves, PageReservation* pages, Pages which = Pages::kReserved);

 private:
  uint64_t move_in_on_any_pages(std::vector<Move>& moves);
  void take_idle(uint64_t bytes, PageReservation* pages) SPILLWAY_REQUIRES_SHARED(heap_.mappings_mutex);
  bool provide(uint64_t bytes, PageReservation* pages, Pages which, std::vector<driver::Page>* out)
      SPILLWAY_REQUIRES_SHARED(heap_.mappings_mutex);
  uint64_t settle(const std::vector<Move>& moves, PageReservation* pages);

  HeapState& heap_;
  Reclaimer& reclaimer_;
  PageSupply& supply_;
  TierMemory& memory_;
  Migration& migration_;
};

}  // namespace spillway
