// Blocks of which the program says when it uses them.
#include "allocator/tiers/before_use/block_returns.h"
#include "allocator/tiers/steps/measure.h"

namespace spillway {

Status BlockReturns::add(Block* block, uint64_t address, uint64_t bytes) {
  if (heap_.forked()) return Status::kUnavailable;
  const Locked guard(heap_.lock);
  if (!heap_.is_live(block, address)) return Status::kNotFound;
  return heap_.tiers.registered.add(block, bytes) ? Status::kOk : Status::kInvalid;
}

void BlockReturns::note_use(Block* block, uint64_t address, const BlockAccess& access) {
  if (heap_.forked()) return;
  StepBoundary boundary = StepBoundary::kNone;
  {
    const Locked guard(heap_.lock);
    if (heap_.is_live(block, address)) boundary = spillway::note_use(heap_, block, access);
  }
  if (boundary != StepBoundary::kNone) [[unlikely]]
    time_step(heap_, boundary);
}

// Counted first: from then on the block does not go, and what has begun is waited for.
Status BlockReturns::touch(Block* block, uint64_t address, FailurePtr* failure) {
  if (heap_.forked()) return Status::kUnavailable;
  {
    const Locked guard(heap_.lock);
    RegisteredBlocks::Registered* entry = heap_.tiers.registered.find(block);
    if (block->address != address || entry == nullptr) return Status::kNotFound;
    ++entry->uses;
  }
  note_use(block, address);
  const Status status = return_from_file(block, address, failure);
  if (status != Status::kOk) done(block, address);
  return status;
}

Status BlockReturns::done(Block* block, uint64_t address) {
  if (heap_.forked()) return Status::kUnavailable;
  const Locked guard(heap_.lock);
  RegisteredBlocks::Registered* entry = heap_.tiers.registered.find(block);
  if (block->address != address || entry == nullptr) return Status::kNotFound;
  if (entry->uses == 0) return Status::kInvalid;
  --entry->uses;
  return Status::kOk;
}

// A block like any other may be used at any time, so that it must be there.
Status BlockReturns::remove(Block* block, uint64_t address, FailurePtr* failure) {
  if (const Status status = touch(block, address, failure); status != Status::kOk) return status;
  const Locked guard(heap_.lock);
  heap_.tiers.registered.remove(block);
  return Status::kOk;
}

StreamId BlockReturns::stream_of(const Block* block) {
  const Locked guard(heap_.lock);
  return heap_.tiling.arena_of(block).stream();
}

// The last piece of the block, if it lies where it is asked for back from: from here on nobody else moves it.
// A move is waited for, but not what takes a freed block's memory away: that would be no touch of it.
Status BlockReturns::claim_last(Block* block, uint64_t address, From from, std::optional<Piece>* piece) {
  piece->reset();
  for (;;) {
    const uint32_t ended = migration_.ended();
    {
      const Locked guard(heap_.lock);
      if (!heap_.is_live(block, address)) return Status::kNotFound;
      SpilledBlocks::Spilled* there = heap_.tiers.spilled.find(block);
      if (there == nullptr) return Status::kOk;
      if (!there->moving) {
        const std::vector<Piece>& pieces = there->pieces;
        if (pieces.empty() || (from == From::kFile && pieces.back().tier != Tier::kNvme)) return Status::kOk;
        there->moving = true;
        *piece = pieces.back();
        return Status::kOk;
      }
    }
    migration_.wait_for_end(ended);
  }
}

}  // namespace spillway
