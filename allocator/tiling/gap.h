// A gap of an arena: holes and voids in a row.
//
// Thread-safety: guarded by the heap's lock, as the arena's blocks are, which are borrowed. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>

#include "allocator/tiling/arena.h"

namespace spillway {

inline bool is_free(const Block* block) {
  return block->state == BlockState::kHole || block->state == BlockState::kVoid;
}

struct Gap {
  const Block *first = nullptr, *last = nullptr;
  AddressRange range() const { return {first->address, last->end()}; }
  // Behind it is no block: it reaches the segment's end.
  bool is_open() const { return last->next == nullptr; }
};

// The gap around a void. Nothing unless the void is its first one: so each gap of a list of voids comes once.
std::optional<Gap> gap_from(const Block* first_void);

// The longest place in the gap, if so many bytes of pages are at hand for its voids.
uint64_t longest_place(const Gap& gap, uint64_t have_bytes);

}  // namespace spillway
