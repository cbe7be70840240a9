// Blocks that lie elsewhere and are used often change places with blocks on the device that are not.
//
// Thread-safety: any thread, without the heap's lock, in the device's context; nothing runs and launches are
// held. Ownership: as Spiller's and Unspiller's. Errors: what could not change places stays. Units: bytes.
#pragma once
#include "allocator/tiers/spiller.h"
#include "allocator/tiers/unspiller.h"

namespace spillway {

class Exchanger {
 public:
  Exchanger(HeapState& heap, Spiller& spiller, Unspiller& unspiller)
      : heap_(heap), spiller_(spiller), unspiller_(unspiller) {}

  // What there is to gain, without doing it.
  uint64_t exchangeable_bytes(const SpillPlace& where);
  // Returns the bytes that came back.
  uint64_t exchange(const SpillPlace& where);

 private:
  HeapState& heap_;
  Spiller& spiller_;
  Unspiller& unspiller_;
};

}  // namespace spillway
