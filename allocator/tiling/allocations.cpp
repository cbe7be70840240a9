// Allocations as an arena keeps them: each is a segment, cut into blocks or one block; see PoolMemory.
#include <algorithm>

#include "allocator/tiling/arena.h"

namespace spillway {

Block* Arena::add_allocation(AddressRange given, uint64_t size, uint64_t requested) {
  const AddressRange range = units_in(given);
  Block* block = slab_.take_whole(range.begin, range.bytes(), index_);
  block->segment = 0;  // nothing asks: there may be more than a block can name
  block->state = BlockState::kHole;
  segments_.push_back({range, block, given, {}});
  if (size < range.bytes() && memory != PoolMemory::kWholeAllocations) split(block, size);
  block->state = BlockState::kLive;
  block->tag = requested;
  return block;
}

AddressRange allocation_of(const Arena& arena, const Block* first) {
  return std::ranges::find(arena.segments(), first, &Segment::first)->given;
}

void Arena::forget_allocation(Block* busy) {
  std::erase_if(segments_, [&](const Segment& segment) { return segment.first == busy; });
  slab_.put(busy);
}

}  // namespace spillway
