// Blocks that are one allocation of the driver's each, as an arena keeps them; see kPoolSingleHandle.
#include "allocator/tiling/arena.h"

namespace spillway {

Block* Arena::add_single(AddressRange range, uint64_t requested) {
  Block* block = slab_.take();
  block->address = range.begin;
  block->size = range.bytes();
  block->tag = requested;
  block->previous = block->next = nullptr;
  block->arena = index_;
  block->segment = 0;  // nothing asks: it is never merged
  block->state = BlockState::kLive;
  segments_.push_back({range, block, {}});
  return block;
}

void Arena::take_single(Block* hole) {
  detach(hole);
  hole->state = BlockState::kBusy;
}

void Arena::forget_single(Block* busy) {
  std::erase_if(segments_, [&](const Segment& segment) { return segment.first == busy; });
  slab_.put(busy);
}

}  // namespace spillway
