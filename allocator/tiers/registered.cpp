// Blocks of which the program says when it uses them: outside of that their memory may be taken away.
#include "allocator/heap.h"

namespace spillway {

Status DeviceHeap::add_block(Block* block, uint64_t address, uint64_t bytes) {
  if (forked()) return Status::kUnavailable;
  const Locked guard(lock_);
  if (block->address != address || block->state != BlockState::kLive) return Status::kNotFound;
  if (!registered_.try_emplace(block, Registered{bytes, 0}).second) return Status::kInvalid;
  block->shared |= kRegistered;
  return Status::kOk;
}

// Counted first: from then on the block does not go, and what has begun is waited for.
Status DeviceHeap::touch_block(Block* block, uint64_t address, FailurePtr* failure) {
  if (forked()) return Status::kUnavailable;
  {
    const Locked guard(lock_);
    const auto entry = registered_.find(block);
    if (block->address != address || entry == registered_.end()) return Status::kNotFound;
    ++entry->second.uses;
  }
  touch(block, address);
  const Status status = unspill_from_file(block, address, failure);
  if (status != Status::kOk) done_block(block, address);
  return status;
}

Status DeviceHeap::done_block(Block* block, uint64_t address) {
  if (forked()) return Status::kUnavailable;
  const Locked guard(lock_);
  const auto entry = registered_.find(block);
  if (block->address != address || entry == registered_.end()) return Status::kNotFound;
  if (entry->second.uses == 0) return Status::kInvalid;
  --entry->second.uses;
  return Status::kOk;
}

// A block like any other may be used at any time, so that it must be there.
Status DeviceHeap::remove_block(Block* block, uint64_t address, FailurePtr* failure) {
  if (const Status status = touch_block(block, address, failure); status != Status::kOk) return status;
  const Locked guard(lock_);
  registered_.erase(block);
  block->shared = static_cast<uint8_t>(block->shared & ~kRegistered);
  return Status::kOk;
}

}  // namespace spillway
