// Live blocks' pages go to another tier.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. For host and peer memory
// nothing runs and launches are held; for a file nobody uses the blocks. Ownership: freed pages go into the
// caller's reservation. Errors: what could not go stays. Units: bytes.
#pragma once
#include <vector>

#include "allocator/tiers/file/file_copies.h"
#include "allocator/tiers/moving/migration.h"

namespace spillway {

class Spiller {
 public:
  Spiller(HeapState& heap, TierMemory& memory, Migration& migration, FileCopies& file)
      : heap_(heap), memory_(memory), migration_(migration), file_(file) {}

  // Of claimed blocks; their moves have ended when it returns.
  SpillResult move_out(std::vector<Move> moves, const SpillPlace& where, PageReservation* into);
  // To make the host memory that these moves would take and that is not at hand.
  double make_us(const std::vector<Move>& moves) const;
  // Asked where the device's memory grows, and when a request `failed`: once a spill is to be expected,
  // memory for it is wanted ahead.
  void foresee(bool failed);
  // What this device's blocks have on `peer` goes to host memory, page for page: at least `bytes`, of which
  // the host takes `most_host_bytes`. Returns the bytes that went.
  uint64_t guests_to_host(DeviceId peer, uint64_t bytes, uint64_t most_host_bytes);

 private:
  bool begin_to_expect(bool failed);
  HostMemory::Amount host_amount_of(const std::vector<Move>& moves) const;
  SpillResult to_memory(std::vector<Move>& moves, const SpillPlace& where, PageReservation* into);
  SpillResult to_file(std::vector<Move>& moves, const SpillPlace& where, PageReservation* into);
  // The tiling learns what went; its pages count as reserved.
  uint64_t settle(const std::vector<Move>& moves, PageReservation* into);
  uint64_t settle_guests(const std::vector<Move>& moves);

  HeapState& heap_;
  TierMemory& memory_;
  Migration& migration_;
  FileCopies& file_;
};

}  // namespace spillway
