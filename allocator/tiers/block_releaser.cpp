#include "allocator/tiers/block_releaser.h"

#include <algorithm>
#include <utility>

#include "allocator/accounting/journal.h"

namespace spillway {

void BlockReleaser::release(Block* block) {
  bool claimed = false;
  {
    const Locked guard(heap_.lock);
    claimed = heap_.tiers.spilled.claim_freed(block);
  }
  if (claimed) release_claimed(block);
}

// False: the driver refused, and it is tried again.
bool BlockReleaser::unmap_pieces(Block* block) {
  std::vector<Piece*> pieces;
  const Arena* arena = nullptr;
  {
    const Locked guard(heap_.lock);
    SpilledBlocks::Spilled* there = heap_.tiers.spilled.find(block);
    if (there == nullptr) return true;
    heap_.tiers.spilled.adopt_common(block);
    arena = &heap_.tiling.arena_of(block);
    for (Piece& piece : there->pieces)
      if (!piece.gone) pieces.push_back(&piece);  // claimed: nobody else changes them
  }
  const Device::Scope scope(*heap_.device);
  for (Piece* piece : pieces) {
    if (piece->tier != Tier::kNvme &&
        heap_.device->unmap(piece->range.begin, piece->range.bytes()) != CUDA_SUCCESS)
      continue;
    {
      const Locked guard(heap_.lock);
      heap_.tiers.spilled.note_gone(*piece);
    }
    if (!piece->mapped) journal::tell_pages(heap_, Change::kUnmapped, *arena, piece->range);
    memory_.give_back(*piece);
  }
  if (std::all_of(pieces.begin(), pieces.end(), [](const Piece* piece) { return piece->gone; })) return true;
  const Locked guard(heap_.lock);
  heap_.tiers.spilled.at(block).moving = false;
  heap_.set_slow(kSlowPending);
  return false;
}

void BlockReleaser::release_claimed(Block* block) {
  const SharedLocked mapping(heap_.mappings_mutex);
  do {
    if (!unmap_pieces(block)) return;
    if (heap_.watched() && begin_to_tell(block)) [[unlikely]]
      journal::tell(heap_, Change::kFreed, block);
  } while (!finish(block));
}

// Once, also of a block whose memory is tried to be given back again.
bool BlockReleaser::begin_to_tell(Block* block) {
  const Locked guard(heap_.lock);
  SpilledBlocks::Spilled* there = heap_.tiers.spilled.find(block);
  return there == nullptr || !std::exchange(there->told, true);
}

// False: meanwhile the last other block left a common piece, which is to be unmapped first.
bool BlockReleaser::finish(Block* block) {
  journal::BlockRecord freed{.kind = trace::Kind::kFree};
  {
    const Locked guard(heap_.lock);
    if (heap_.tiers.spilled.contains(block) && heap_.tiers.spilled.adopt_common(block)) return false;
    freed.address = block->address, freed.bytes = block->size, freed.requested = block->tag;
    freed.stream = heap_.tiling.arena_of(block).stream();
    heap_.usage.complete(freed.bytes, freed.requested);
    freed.order = ++heap_.order;
    put_back(block, freed.order);
  }
  journal::block(heap_, freed);
  return true;
}

void BlockReleaser::put_back(Block* block, uint64_t order) {
  Arena& arena = heap_.tiling.arena_of(block);
  if (!heap_.tiers.spilled.contains(block)) {
    arena.put_hole(block, order);
    return;
  }
  const std::vector<Piece> pieces = heap_.tiers.spilled.forget(block);
  for (const Piece& piece : pieces) {
    forget_pages(arena, piece);
    restore_in(arena, piece.range, block, order);
  }
  arena.restore(block, order);
  if (heap_.tiers.spilled.empty()) heap_.clear_slow(kSlowSpilled);
}

// Pages that wait for the bytes of a file are the arena's like any other.
void BlockReleaser::forget_pages(Arena& arena, const Piece& piece) {
  if (!piece.mapped) arena.set_pages(piece.range, 0);
}

void BlockReleaser::retry() {
  std::vector<Block*> freed;
  {
    const Locked guard(heap_.lock);
    freed = heap_.tiers.spilled.claim_all_freed();
  }
  for (Block* block : freed) release_claimed(block);
}

bool BlockReleaser::must_retry() {
  const Locked guard(heap_.lock);
  return heap_.tiers.spilled.any_freed();
}

void BlockReleaser::end() {
  std::vector<std::pair<Block*, Piece>> pieces;
  {
    const Locked guard(heap_.lock);
    pieces = heap_.tiers.spilled.forget_all();
    for (const auto& [block, piece] : pieces) forget_pages(heap_.tiling.arena_of(block), piece);
  }
  for (const auto& [unused, piece] : pieces) {
    if (piece.gone || piece.tier == Tier::kNvme) continue;
    heap_.device->unmap(piece.range.begin, piece.range.bytes());
    memory_.give_back(piece);
  }
  memory_.host().release(0);
}

}  // namespace spillway
