#include "allocator/tiers/spilled_blocks.h"

#include <algorithm>
#include <utility>

namespace spillway {

uint64_t bytes_of(const std::vector<Move>& moves) {
  uint64_t bytes = 0;
  for (const Move& move : moves) bytes += move.range.bytes();
  return bytes;
}

std::vector<Block*> blocks_of(const Move& move) {
  std::vector<Block*> blocks{move.block};
  blocks.insert(blocks.end(), move.others.begin(), move.others.end());
  return blocks;
}

uint64_t bytes_in(const Block* block, AddressRange range) {
  const uint64_t begin = std::max(block->address, range.begin), end = std::min(block->end(), range.end);
  return end - std::min(begin, end);
}

SpilledBlocks::Spilled* SpilledBlocks::find(Block* block) {
  const auto found = blocks_.find(block);
  return found == blocks_.end() ? nullptr : &found->second;
}

void SpilledBlocks::begin_moves(const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    for (Block* block : blocks_of(move)) {
      blocks_[block].moving = true;
      if (block->state == BlockState::kLive) block->shared |= kSpilled;
    }
  }
}

bool SpilledBlocks::any_moving(const CommonPiece& common) const {
  return std::ranges::any_of(common.blocks, [&](Block* block) { return blocks_.at(block).moving; });
}

bool SpilledBlocks::end_move(Block* block) {
  const auto there = blocks_.find(block);
  const bool freed = there->second.freed;
  there->second.moving = freed;
  if (there->second.pieces.empty() && there->second.common.empty()) {
    block->shared = static_cast<uint8_t>(block->shared & ~kSpilled);
    blocks_.erase(there);
  }
  return freed;
}

void SpilledBlocks::add(const Move& move) {
  Piece piece{
      .range = move.range, .pages = move.to, .tier = move.tier, .peer = move.peer, .stored = move.stored};
  const std::vector<Block*> blocks = blocks_of(move);
  for (const Block* block : blocks) bytes_ += bytes_in(block, move.range);
  if (piece.tier == Tier::kPeer) shared_.count_guest(piece.peer, piece.range.bytes());
  if (!move.common) {
    blocks_[move.block].pieces.push_back(std::move(piece));
    return;
  }
  for (Block* block : blocks) blocks_[block].common.push_back(move.range.begin);
  common_[move.range.begin] = {std::move(piece), blocks};
}

void SpilledBlocks::uncount(const Piece& piece) {
  if (piece.tier == Tier::kPeer && !piece.gone) shared_.count_guest(piece.peer, 0 - piece.range.bytes());
}

void SpilledBlocks::remove(const Move& move) {
  const uint64_t begin = move.range.begin;
  for (const Block* block : blocks_of(move)) bytes_ -= bytes_in(block, move.range);
  if (move.common) {
    for (Block* block : blocks_of(move)) std::erase(blocks_.at(block).common, begin);
    common_.erase(begin);
    return;
  }
  std::vector<Piece>& pieces = blocks_.at(move.block).pieces;
  const auto back = std::ranges::find(pieces, begin, [](const Piece& piece) { return piece.range.begin; });
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

bool SpilledBlocks::adopt_common(Block* block) {
  Spilled& there = blocks_.at(block);
  const size_t before = there.common.size();
  std::erase_if(there.common, [&](uint64_t begin) {
    if (common_.at(begin).blocks.size() != 1) return false;
    there.pieces.push_back(std::move(common_.at(begin).piece));
    common_.erase(begin);
    return true;
  });
  return there.common.size() != before;
}

std::vector<Piece> SpilledBlocks::forget(Block* block) {
  auto there = blocks_.extract(block);
  if (there.empty()) return {};
  for (const Piece& piece : there.mapped().pieces) {
    bytes_ -= bytes_in(block, piece.range);
    uncount(piece);
  }
  for (const uint64_t begin : there.mapped().common) {
    bytes_ -= bytes_in(block, common_.at(begin).piece.range);
    std::erase(common_.at(begin).blocks, block);
  }
  return std::move(there.mapped().pieces);
}

std::vector<std::pair<Block*, Piece>> SpilledBlocks::forget_all() {
  std::vector<std::pair<Block*, Piece>> all;
  for (auto& [block, there] : blocks_)
    for (Piece& piece : there.pieces) all.emplace_back(block, std::move(piece));
  for (auto& [unused, common] : common_) all.emplace_back(common.blocks.front(), std::move(common.piece));
  for (const auto& [unused, piece] : all) uncount(piece);
  blocks_.clear();
  common_.clear();
  bytes_ = 0;
  return all;
}

uint64_t SpilledBlocks::bytes(Tier tier) const {
  uint64_t bytes = 0;
  const auto count = [&](const Piece& piece) {
    bytes += piece.tier == tier && !piece.gone ? piece.range.bytes() : 0;
  };
  for (const auto& [unused, there] : blocks_) std::ranges::for_each(there.pieces, count);
  for (const auto& [unused, common] : common_) count(common.piece);
  return bytes;
}

uint64_t SpilledBlocks::pending_bytes() const {
  uint64_t bytes = 0;
  each_piece([&](const Block* block, const Piece& piece) {
    if (block->state == BlockState::kPending) bytes += bytes_in(block, piece.range);
  });
  return bytes;
}

void SpilledBlocks::leave_out(Memory* out) const {
  each_piece([&](const Block* block, const Piece& piece) {
    const uint64_t bytes = bytes_in(block, piece.range);
    if (block->state == BlockState::kPending) {
      out->pending -= bytes;
      return;
    }
    out->spilled += bytes;
    if (piece.tier == Tier::kNvme) out->spilled_nvme += bytes;
    if (piece.tier == Tier::kPeer) out->spilled_peer += bytes;
    const uint64_t begin = std::max(block->address, piece.range.begin), end = begin + bytes;
    const uint64_t asked_end = std::clamp(block->address + block->tag, begin, end);
    out->live -= asked_end - begin;
    out->rounding -= end - asked_end;
  });
}

Move return_of(const SpilledBlocks::CommonPiece& common) {
  Move move;
  move.block = common.blocks.front();
  move.common = true;
  move.others.assign(common.blocks.begin() + 1, common.blocks.end());
  move.range = common.piece.range;
  move.was = common.piece.tier;
  move.from = common.piece.pages;
  return move;
}

uint64_t SpilledBlocks::sum() const {
  uint64_t bytes = 0;
  each_piece([&](const Block* block, const Piece& piece) { bytes += bytes_in(block, piece.range); });
  return bytes;
}

}  // namespace spillway
