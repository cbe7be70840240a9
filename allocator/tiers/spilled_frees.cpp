// Blocks that are freed while their memory lies in another tier, or is on its way.
#include <algorithm>
#include <utility>

#include "allocator/heap.h"

namespace spillway {

// Nothing uses the block any more: whether it can go at once. What is on the move goes when that has ended.
bool DeviceHeap::claim_elsewhere(Block* block) {
  const Locked guard(lock_);
  const auto there = spilled_.find(block);
  if (there == spilled_.end()) return true;
  there->second.freed = true;
  return !std::exchange(there->second.moving, true);
}

// Of a block that was claimed. False: the driver refused, and it is tried again.
bool DeviceHeap::unmap_elsewhere(Block* block) {
  std::vector<Piece*> pieces;
  const Arena* arena = nullptr;
  {
    const Locked guard(lock_);
    const auto there = spilled_.find(block);
    if (there == spilled_.end()) return true;
    arena = arenas_[block->arena].get();
    for (Piece& piece : there->second.pieces)
      if (!piece.gone) pieces.push_back(&piece);  // claimed: nobody else changes them
  }
  const Device::Scope scope(*device_);
  for (Piece* piece : pieces) {
    if (piece->tier != Tier::kNvme &&
        device_->unmap(piece->range.begin, piece->range.bytes()) != CUDA_SUCCESS)
      continue;
    note_gone(*piece);
    if (!piece->mapped) tell_pages(Change::kUnmapped, *arena, piece->range);
    drop_elsewhere(*piece);
  }
  if (std::all_of(pieces.begin(), pieces.end(), [](const Piece* piece) { return piece->gone; })) return true;
  const Locked guard(lock_);
  spilled_.at(block).moving = false;
  set_slow(kSlowPending);
  return false;
}

// Its memory serves others from here on, though the rest of the block may still have to wait.
void DeviceHeap::note_gone(Piece& piece) {
  const Locked guard(lock_);
  uncount_guest(piece);
  piece.gone = true;
}

bool DeviceHeap::leaves_elsewhere() {
  const Locked guard(lock_);
  return std::any_of(spilled_.begin(), spilled_.end(), [](const auto& entry) { return entry.second.freed; });
}

void DeviceHeap::retry_elsewhere() {
  std::vector<Block*> freed;
  {
    const Locked guard(lock_);
    for (auto& [block, there] : spilled_)
      if (there.freed && !std::exchange(there.moving, true)) freed.push_back(block);
  }
  for (Block* block : freed) complete_claimed(block);
}

// Its pages there are none now. False: it has had none.
bool DeviceHeap::forget_elsewhere(Block* block) {
  const auto there = spilled_.extract(block);
  if (there.empty()) return false;
  for (const Piece& piece : there.mapped().pieces) remove_piece(piece);
  for (const Piece& piece : there.mapped().pieces) forget_pages(block, piece);
  if (spilled_.empty()) clear_slow(kSlowSpilled);
  return true;
}

// Pages that wait for the bytes of a file are the arena's like any other.
void DeviceHeap::forget_pages(const Block* block, const Piece& piece) {
  for (uint64_t at = piece.range.begin; at < piece.range.end && !piece.mapped; at += page_bytes_)
    arenas_[block->arena]->set_page(at, 0);
}

void DeviceHeap::end_spilling() {
  retry_left_over();
  std::unordered_map<Block*, Spilled> spilled;
  {
    const Locked guard(lock_);
    spilled.swap(spilled_);
    for (const auto& [block, there] : spilled) {
      for (const Piece& piece : there.pieces) {
        remove_piece(piece);
        forget_pages(block, piece);
      }
    }
  }
  for (const auto& [block, there] : spilled) {
    for (const Piece& piece : there.pieces) {
      if (piece.gone || piece.tier == Tier::kNvme) continue;
      device_->unmap(piece.range.begin, piece.range.bytes());
      device_->release(piece.handle);
    }
  }
  pinned_host_cache_.shrink(0);
  const Locked guard(file_mutex_);
  buffers_.give_back(*device_);
}

}  // namespace spillway
