// The order in which moves are made: neighbours beside each other, because the driver takes about as long for
// one page as for many.
//
// Thread-safety: none. Ownership: names moves. Errors: none. Units: bytes.
#pragma once
#include <algorithm>
#include <vector>

#include "allocator/tiers/spilled_blocks.h"

namespace spillway {

// CUDA promises nothing of a range that crosses from one reservation of addresses into the next.
inline bool in_one_segment(const Move& a, const Move& b) {
  return a.block->arena == b.block->arena && a.block->segment == b.block->segment;
}

// Moves of neighbours, which can be one exchange.
struct Neighbours {
  bool continues(const Move& move, uint64_t most_bytes) const {
    const Move& last = *moves.back();
    return last.range.end == move.range.begin && in_one_segment(last, move) && last.tier == move.tier &&
           last.was == move.was && range().bytes() + move.range.bytes() <= most_bytes;
  }
  AddressRange range() const { return {moves.front()->range.begin, moves.back()->range.end}; }

  std::vector<Move*> moves;
};

// Neighbours beside each other, as many as `most_bytes` take; for the rest in the chooser's order, because
// memory may end half-way.
std::vector<Move*> beside_neighbours(std::vector<Move>& moves, uint64_t most_bytes);

}  // namespace spillway
