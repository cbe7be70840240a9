// Which blocks' pages go to another tier, and which come back: the coldest go first, the most used come
// first.
//
// Thread-safety: under the heap's lock. Errors: fewer moves where there are not so many pages. Units: bytes.
#pragma once
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/tiers/tiers.h"

namespace spillway {

// What of a block may go: its whole handles, or also its pages of handles that it shares, once they are
// divided.
enum class Grain : uint8_t { kHandles, kPages };
// Of pages that a block has to itself, at least `bytes`, and at most `most_bytes`. To the host a block's
// moves are no larger than a chunk, unless a handle is.
std::vector<Move> own_moves(const HeapState& heap, uint64_t bytes, const SpillPlace& where,
                            uint64_t most_bytes, Grain grain = Grain::kHandles) SPILLWAY_REQUIRES(heap.lock);
struct Wanted {
  uint64_t bytes = 0;
  uint64_t ahead_bytes = 0;  // beyond these, while there are such pages
  AddressRange place{};      // where they are to be used: free memory there stays
};
// The same; and where these pages do not suffice, to the host also such as no block has to itself.
std::vector<Move> choose_moves(const HeapState& heap, const Wanted& wanted, const SpillPlace& where,
                               uint64_t most_bytes, Grain grain = Grain::kHandles)
    SPILLWAY_REQUIRES(heap.lock);
// Of blocks that come back by themselves, at most `most_bytes`. One move a block.
std::vector<Move> choose_returns(const HeapState& heap, uint64_t most_bytes) SPILLWAY_REQUIRES(heap.lock);
// From `peer` to host memory; and from `peer` to this device.
std::vector<Move> choose_guests(const HeapState& heap, DeviceId peer, uint64_t bytes)
    SPILLWAY_REQUIRES(heap.lock);
std::vector<Move> choose_guests_to_return(const HeapState& heap, DeviceId peer, uint64_t bytes)
    SPILLWAY_REQUIRES(heap.lock);

// Blocks that come back, the most used first, and others on the device that are used much less and go
// instead, at most `where.most_bytes` of them.
struct Exchange {
  std::vector<Move> in, out;
};
Exchange choose_exchange(const HeapState& heap, const SpillPlace& where) SPILLWAY_REQUIRES(heap.lock);

// What could come back, with room left for the most that was needed lately; 0 until that is long enough ago.
uint64_t returnable_room(const HeapState& heap) SPILLWAY_REQUIRES(heap.lock);
// The same, or 0 where no block fits into it.
uint64_t returnable_bytes(const HeapState& heap) SPILLWAY_REQUIRES(heap.lock);

// How many times as long the program would take with these moves too: by its steps' times as far as they are
// known, else by the uses and the links alone. 1 where nothing can be said.
double slowdown(const HeapState& heap, const std::vector<Move>& moves) SPILLWAY_REQUIRES(heap.lock);
double bytes_per_us(const HeapState& heap, Tier tier) SPILLWAY_REQUIRES(heap.lock);

}  // namespace spillway
