// Whether a block's memory may go to another tier at the moment.
//
// Thread-safety: under the heap's lock. Errors: none.
#pragma once
#include "allocator/heap_state.h"
#include "allocator/tiers/choice/pins.h"

namespace spillway {

// It is the program's alone, nothing else moves it, and what goes there could be used there: what of it lies
// in a file must come back first.
inline bool may_go(const HeapState& heap, Block* block, Tier where, const Pins& pins)
    SPILLWAY_REQUIRES(heap.lock) {
  if (block->state != BlockState::kLive || (block->shared & kOtherProcesses) != 0) return false;
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  if ((there != nullptr && there->moving) || pins.cover(block->address, block->size)) return false;
  const RegisteredBlocks::Registered* entry = heap.tiers.registered.find(block);
  if (entry != nullptr && entry->uses != 0) return false;
  if (where == Tier::kNvme) return entry != nullptr;
  return there == nullptr || there->pieces.empty() || there->pieces.back().tier != Tier::kNvme;
}

}  // namespace spillway
