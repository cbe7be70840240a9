// Allocations as an arena keeps them: each is a segment, cut into blocks or one block; see PoolMemory.
#include "allocator/tiling/arena.h"

namespace spillway {

Block* Arena::add_allocation(AddressRange range, uint64_t size, uint64_t requested) {
  Block* block = slab_.take_whole(range.begin, range.bytes(), index_);
  block->segment = 0;  // nothing asks: there may be more than a block can name
  block->state = BlockState::kHole;
  segments_.push_back({range, block, {}});
  if (size < range.bytes() && memory != PoolMemory::kWholeAllocations) split(block, size);
  block->state = BlockState::kLive;
  block->tag = requested;
  return block;
}

void Arena::forget_allocation(Block* busy) {
  std::erase_if(segments_, [&](const Segment& segment) { return segment.first == busy; });
  slab_.put(busy);
}

}  // namespace spillway
