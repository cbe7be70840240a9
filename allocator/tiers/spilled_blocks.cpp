#include "allocator/tiers/spilled_blocks.h"

#include <algorithm>
#include <utility>

namespace spillway {

uint64_t bytes_of(const std::vector<Move>& moves) {
  uint64_t bytes = 0;
  for (const Move& move : moves) bytes += move.range.bytes();
  return bytes;
}

SpilledBlocks::Spilled* SpilledBlocks::find(Block* block) {
  const auto found = blocks_.find(block);
  return found == blocks_.end() ? nullptr : &found->second;
}

void SpilledBlocks::begin_moves(const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    blocks_[move.block].moving = true;
    move.block->shared |= kSpilled;
  }
}

bool SpilledBlocks::end_move(Block* block) {
  const auto there = blocks_.find(block);
  const bool freed = there->second.freed;
  there->second.moving = freed;
  if (there->second.pieces.empty()) {
    block->shared = static_cast<uint8_t>(block->shared & ~kSpilled);
    blocks_.erase(there);
  }
  return freed;
}

void SpilledBlocks::add(Block* block, const Piece& piece) {
  blocks_[block].pieces.push_back(piece);
  bytes_ += piece.range.bytes();
  if (piece.tier == Tier::kPeer) shared_.count_guest(piece.peer, piece.range.bytes());
}

void SpilledBlocks::uncount(const Piece& piece) {
  if (piece.tier == Tier::kPeer && !piece.gone) shared_.count_guest(piece.peer, 0 - piece.range.bytes());
}

void SpilledBlocks::remove(Block* block, uint64_t begin) {
  std::vector<Piece>& pieces = blocks_.at(block).pieces;
  const auto back = std::ranges::find(pieces, begin, [](const Piece& piece) { return piece.range.begin; });
  bytes_ -= back->range.bytes();
  uncount(*back);
  pieces.erase(back);
}

void SpilledBlocks::went_to_host(const Move& move) {
  for (Piece& piece : blocks_.at(move.block).pieces) {
    if (piece.range.begin != move.range.begin) continue;
    uncount(piece);
    piece.pages = move.to;
    piece.tier = Tier::kHost;
  }
}

void SpilledBlocks::note_gone(Piece& piece) {
  uncount(piece);
  piece.gone = true;
}

bool SpilledBlocks::claim_freed(Block* block) {
  Spilled* there = find(block);
  if (there == nullptr) return true;
  there->freed = true;
  return !std::exchange(there->moving, true);
}

std::vector<Block*> SpilledBlocks::claim_all_freed() {
  std::vector<Block*> freed;
  for (auto& [block, there] : blocks_)
    if (there.freed && !std::exchange(there.moving, true)) freed.push_back(block);
  return freed;
}

bool SpilledBlocks::any_freed() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const auto& entry) { return entry.second.freed; });
}

std::vector<Piece> SpilledBlocks::forget(Block* block) {
  auto there = blocks_.extract(block);
  if (there.empty()) return {};
  for (const Piece& piece : there.mapped().pieces) {
    bytes_ -= piece.range.bytes();
    uncount(piece);
  }
  return std::move(there.mapped().pieces);
}

SpilledBlocks::Map SpilledBlocks::forget_all() {
  for (const auto& [block, there] : blocks_)
    for (const Piece& piece : there.pieces) uncount(piece);
  bytes_ = 0;
  return std::exchange(blocks_, {});
}

uint64_t SpilledBlocks::bytes(Tier tier) const {
  uint64_t bytes = 0;
  for (const auto& [block, there] : blocks_)
    for (const Piece& piece : there.pieces)
      bytes += piece.tier == tier && !piece.gone ? piece.range.bytes() : 0;
  return bytes;
}

uint64_t SpilledBlocks::pending_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [block, there] : blocks_) {
    if (block->state != BlockState::kPending) continue;
    for (const Piece& piece : there.pieces) bytes += piece.range.bytes();
  }
  return bytes;
}

void SpilledBlocks::leave_out(Memory* out) const {
  for (const auto& [block, there] : blocks_) {
    for (const Piece& piece : there.pieces) {
      const uint64_t bytes = piece.range.bytes();
      if (block->state == BlockState::kPending) {
        out->pending -= bytes;
        continue;
      }
      out->spilled += bytes;
      if (piece.tier == Tier::kNvme) out->spilled_nvme += bytes;
      if (piece.tier == Tier::kPeer) out->spilled_peer += bytes;
      const uint64_t asked_end = std::clamp(block->address + block->tag, piece.range.begin, piece.range.end);
      out->live -= asked_end - piece.range.begin;
      out->rounding -= piece.range.end - asked_end;
    }
  }
}

uint64_t SpilledBlocks::sum() const {
  uint64_t bytes = 0;
  for (const auto& [unused, there] : blocks_)
    for (const Piece& piece : there.pieces) bytes += piece.range.bytes();
  return bytes;
}

}  // namespace spillway
