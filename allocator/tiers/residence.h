// Where one device's blocks lie, and what may change about it between two requests.
//
// Thread-safety: any thread, without the heap's lock; what moves blocks, while nothing runs on the device and
// launches are held. Errors: what could not move stays. In a forked child nothing is done. Units: bytes.
#pragma once
#include "allocator/tiers/exchanger.h"
#include "allocator/tiers/steps/measure.h"
#include "allocator/tiers/tiers.h"

namespace spillway {

class Residence {
 public:
  Residence(HeapState& heap, TierMemory& memory, Spiller& spiller, Unspiller& unspiller, Exchanger& exchanger)
      : heap_(heap), memory_(memory), spiller_(spiller), unspiller_(unspiller), exchanger_(exchanger) {}

  uint64_t spilled_bytes(Tier tier);
  uint64_t kept_host_bytes() const { return memory_.host().kept_bytes(); }
  bool make_host_memory_ahead(uint64_t most_bytes);
  void release_host_memory();

  uint64_t returnable_bytes();
  uint64_t unspill();
  void postpone_return() { unspiller_.postpone(); }
  void hurry_returns(bool hurried);
  Slowdown slowdown();
  uint64_t exchangeable_bytes(const SpillPlace& where);
  uint64_t exchange(const SpillPlace& where);

  Peers peers();
  uint64_t guest_room();
  // Of what this device's blocks have on `peer`.
  uint64_t evict(DeviceId peer, uint64_t bytes, uint64_t most_host_bytes);

 private:
  HeapState& heap_;
  TierMemory& memory_;
  Spiller& spiller_;
  Unspiller& unspiller_;
  Exchanger& exchanger_;
};

}  // namespace spillway
