// Blocks' pages come back to the device.
//
// Thread-safety: any thread, without the heap's lock, in the device's context; nothing runs and launches are
// held. Ownership: pages that were not needed stay in the reservation, or become spare. Errors: what could
// not come stays. Units: bytes.
#pragma once
#include <vector>

#include "allocator/pages/page_supply.h"
#include "allocator/tiers/migration.h"

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
  // Of claimed blocks, on reserved pages, spare or new ones; their moves have ended when it returns.
  uint64_t move_in(std::vector<Move>& moves, PageReservation* pages);

 private:
  uint64_t move_in_on_any_pages(std::vector<Move>& moves);
  bool provide(Move& move, PageReservation* pages);
  uint64_t settle(const std::vector<Move>& moves, PageReservation* pages);

  HeapState& heap_;
  Reclaimer& reclaimer_;
  PageSupply& supply_;
  TierMemory& memory_;
  Migration& migration_;
};

}  // namespace spillway
