// Pages that no block has to itself: they go to host memory when blocks' own pages do not suffice, and only
// where each block on them may go; they come back whole. What is free on them serves nobody meanwhile.
//
// Thread-safety: under the heap's lock. Errors: fewer moves where there are not so many pages. Units: bytes.
#pragma once
#include <utility>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/tiers/choice/choose.h"
#include "allocator/tiers/choice/pins.h"

namespace spillway {

// Takes what is free on those pages out of the tiling, as busy blocks. What has not gone comes back by
// restore_in.
void take_free_parts(HeapState& heap, const std::vector<Move>& moves) SPILLWAY_REQUIRES(heap.lock);

// At most `most_bytes`, the least used first. By handles, or by pages that are to be divided from others
// first.
std::vector<Move> common_moves(const HeapState& heap, const Wanted& wanted, uint64_t most_bytes, Grain grain)
    SPILLWAY_REQUIRES(heap.lock);
// Whether a piece of at most `most_bytes` could come back.
bool any_common_returns(const HeapState& heap, const Pins& pins, uint64_t most_bytes)
    SPILLWAY_REQUIRES(heap.lock);
// What could come back, each with how often its bytes are used on average.
std::vector<std::pair<double, Move>> common_returns(const HeapState& heap, const Pins& pins)
    SPILLWAY_REQUIRES(heap.lock);

}  // namespace spillway
