#include "allocator/tiers/choice/choose.h"

#include <algorithm>

#include "allocator/costs.h"
#include "allocator/tiers/host/host_memory.h"

namespace spillway {
namespace {

// A share of the limit stays free when something comes back.
constexpr uint64_t kMarginShare = 20;

// The whole pages of a block that are on the device: those behind them went before.
AddressRange movable(const HeapState& heap, Block* block, Tier where) SPILLWAY_REQUIRES(heap.lock) {
  AddressRange range = heap.tiling.arena_of(block).whole_pages(block);
  if (where == Tier::kNvme) {  // only what was registered of it
    const uint64_t end = block->address + heap.tiers.registered.find(block)->bytes;
    range.end = std::min(range.end, end / heap.page_bytes * heap.page_bytes);
  }
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  if (there != nullptr && !there->pieces.empty())
    range.end = std::min(range.end, there->pieces.back().range.begin);
  range.end = std::max(range.begin, range.end);
  return range;
}

bool may_move(const HeapState& heap, Block* block, const Pins& pins) SPILLWAY_REQUIRES(heap.lock) {
  if (block->state != BlockState::kLive || (block->shared & kOtherProcesses) != 0) return false;
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  return (there == nullptr || !there->moving) && !pins.cover(block->address, block->size);
}

// What lies in a file must come back before more of the block goes to where it could be used.
bool may_go(const HeapState& heap, Block* block, Tier where) SPILLWAY_REQUIRES(heap.lock) {
  const RegisteredBlocks::Registered* entry = heap.tiers.registered.find(block);
  if (entry != nullptr && entry->uses != 0) return false;
  if (where == Tier::kNvme) return entry != nullptr;
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  return there == nullptr || there->pieces.empty() || there->pieces.back().tier != Tier::kNvme;
}

// Coldest first, and what was used a moment ago last. Of those that were never seen in use the latest first:
// weights are older than activations.
struct Candidate {
  bool recent;
  double frequency;
  Block* block;
  bool operator<(const Candidate& other) const {
    if (recent != other.recent) return other.recent;
    return frequency < other.frequency || (frequency == other.frequency &&
                                           AccessFrequency::born(block) > AccessFrequency::born(other.block));
  }
};

std::vector<Candidate> cold_blocks(const HeapState& heap, Tier where) SPILLWAY_REQUIRES(heap.lock) {
  std::vector<Candidate> cold;
  const Pins pins = heap.shared.pinned();
  const auto consider = [&](Block* block) SPILLWAY_REQUIRES(heap.lock) {
    if (may_move(heap, block, pins) && may_go(heap, block, where) && movable(heap, block, where).bytes() != 0)
      cold.push_back(
          {AccessFrequency::recent(block, heap.order), heap.tiers.access.of(block, heap.order), block});
  };
  for (const auto& arena : heap.tiling.arenas()) {
    if (arena->pool() != 0 || arena->single_handle || arena->small()) continue;
    for (const Segment& segment : arena->segments())
      for (Block* block = segment.first; block != nullptr; block = block->next) consider(block);
  }
  std::stable_sort(cold.begin(), cold.end());
  return cold;
}

// Of a block's `there` bytes. To the host a whole chunk goes instead of a part of one, where that is no more
// than goes beyond the need anyway: the part would take single pages.
uint64_t bytes_to_take(const HeapState& heap, uint64_t there, uint64_t needed, Tier tier, uint64_t most)
    SPILLWAY_REQUIRES(heap.lock) {
  const uint64_t pages = std::min(there / heap.page_bytes, (needed - 1) / heap.page_bytes + 1);
  const uint64_t bytes = pages * heap.page_bytes, chunk = host_chunk_bytes(heap.page_bytes);
  const uint64_t whole = (bytes + chunk - 1) / chunk * chunk;
  const bool rounds_up = tier == Tier::kHost && whole <= std::min(there, most) &&
                         whole - bytes <= costs::ahead_bytes(heap.most_bytes());
  return rounds_up ? whole : bytes;
}

// To the host by chunks, the block's last first: what was moved stays when memory ends before the rest.
void add_moves(Move move, uint64_t page_bytes, std::vector<Move>* moves) {
  const AddressRange whole = move.range;
  const uint64_t most = move.tier == Tier::kHost ? host_chunk_bytes(page_bytes) : whole.bytes();
  for (move.range.end = whole.end; move.range.end != whole.begin; move.range.end = move.range.begin) {
    move.range.begin = move.range.end - std::min(most, move.range.end - whole.begin);
    moves->push_back(move);
  }
}

// The end of what is on the device of a block, for `needed` bytes where `taken` go already. Returns its bytes.
uint64_t add_end(const HeapState& heap, Block* block, uint64_t needed, const SpillPlace& where, uint64_t taken,
                 std::vector<Move>* moves) SPILLWAY_REQUIRES(heap.lock) {
  AddressRange range = movable(heap, block, where.tier);
  const uint64_t left = where.most_bytes - std::min(where.most_bytes, taken);
  range.begin = range.end - bytes_to_take(heap, range.bytes(), needed, where.tier, left);
  add_moves({.block = block, .range = range, .tier = where.tier, .peer = where.peer}, heap.page_bytes, moves);
  return range.bytes();
}

// What lies in a file comes back when the program says that it uses it.
bool returns_by_itself(const SpilledBlocks::Spilled& there) {
  return !there.moving && !there.pieces.empty() && there.pieces.back().tier != Tier::kNvme;
}

bool may_return(const Block* block, const SpilledBlocks::Spilled& there, const Pins& pins) {
  return block->state == BlockState::kLive && returns_by_itself(there) &&
         !pins.cover(block->address, block->size);
}

Move return_of(Block* block, const Piece& piece) {
  return {.block = block, .range = piece.range, .was = piece.tier, .from = piece.pages};
}

bool any_of_block(const std::vector<Move>& moves, const Block* block) {
  return std::any_of(moves.begin(), moves.end(), [&](const Move& move) { return move.block == block; });
}

}  // namespace

std::vector<Move> choose_moves(const HeapState& heap, uint64_t bytes, const SpillPlace& where,
                               uint64_t most_bytes) {
  std::vector<Move> moves;
  uint64_t taken = 0;
  bytes = std::min(bytes, most_bytes / heap.page_bytes * heap.page_bytes);
  for (const Candidate& candidate : cold_blocks(heap, where.tier)) {
    if (bytes == 0) break;
    const uint64_t end = add_end(heap, candidate.block, bytes, where, taken, &moves);
    taken += end;
    bytes -= std::min(bytes, end);
  }
  return moves;
}

uint64_t returnable_room(const HeapState& heap) {
  const NeedHistory& needs = heap.tiers.needs;
  const uint64_t most = heap.most_bytes();
  const uint64_t taken = needs.peak() + most / kMarginShare;
  return heap.tiers.spilled.empty() || !needs.quiet(heap.order) || taken > most ? 0 : most - taken;
}

uint64_t returnable_bytes(const HeapState& heap) {
  if (heap.tiers.spilled.empty()) return 0;
  const uint64_t room = returnable_room(heap);
  const Pins pins = heap.shared.pinned();
  for (const auto& [block, there] : heap.tiers.spilled.all())
    if (may_return(block, there, pins) && there.pieces.back().range.bytes() <= room) return room;
  return 0;
}

// The pieces that went last are the first to come: what stays elsewhere remains the block's end.
std::vector<Move> choose_returns(const HeapState& heap, uint64_t most_bytes) {
  std::vector<std::pair<double, Block*>> blocks;
  const Pins pins = heap.shared.pinned();
  for (const auto& [block, there] : heap.tiers.spilled.all()) {
    if (!may_return(block, there, pins)) continue;
    const Piece& last = there.pieces.back();
    blocks.emplace_back(heap.tiers.access.of(block, heap.order) / bytes_per_us(heap, last.tier), block);
  }
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Move> moves;
  for (const auto& [unused, block] : blocks) {
    const std::vector<Piece>& pieces = heap.tiers.spilled.find(block)->pieces;
    for (auto piece = pieces.rbegin(); piece != pieces.rend() && piece->tier != Tier::kNvme; ++piece) {
      if (piece->range.bytes() > most_bytes) break;
      most_bytes -= piece->range.bytes();
      moves.push_back(return_of(block, *piece));
    }
  }
  return moves;
}

// Only for a gain that is sure: counts of uses are rough, and the device stands still for it. Of a block that
// is no older than a step or two, as an activation, they say nothing. A block goes one way, once: what is
// left of it goes the next time.
Exchange choose_exchange(const HeapState& heap, const SpillPlace& where) {
  constexpr double kGain = 4;
  const uint64_t young = 2 * heap.tiers.steps.orders();
  Exchange exchange;
  const std::vector<Candidate> cold = cold_blocks(heap, where.tier);
  auto next = cold.begin();
  uint64_t left = where.most_bytes;
  for (Move& move : choose_returns(heap, UINT64_MAX)) {
    if (heap.order - AccessFrequency::born(move.block) < young) continue;
    const double most = heap.tiers.access.of(move.block, heap.order) / kGain;
    uint64_t needed = move.range.bytes();
    std::vector<Move> out;
    for (; needed != 0 && next != cold.end() && !next->recent && next->frequency < most; ++next) {
      if (any_of_block(exchange.in, next->block) || next->block == move.block) continue;
      needed -= std::min(needed, add_end(heap, next->block, needed, where, where.most_bytes, &out));
    }
    if (needed != 0 || bytes_of(out) > left || any_of_block(exchange.out, move.block)) break;
    left -= bytes_of(out);
    exchange.in.push_back(std::move(move));
    exchange.out.insert(exchange.out.end(), out.begin(), out.end());
  }
  return exchange;
}

std::vector<Move> choose_guests(const HeapState& heap, DeviceId peer, uint64_t bytes) {
  std::vector<Move> moves;
  const Pins pins = heap.shared.pinned();
  for (const auto& [block, there] : heap.tiers.spilled.all()) {
    if (block->state != BlockState::kLive || there.moving || pins.cover(block->address, block->size))
      continue;
    for (const Piece& piece : there.pieces) {
      if (bytes == 0) return moves;
      if (piece.tier != Tier::kPeer || piece.peer != peer) continue;
      moves.push_back(return_of(block, piece));
      moves.back().tier = Tier::kHost;
      bytes -= std::min(bytes, piece.range.bytes());
    }
  }
  return moves;
}

// Only the last piece of a block that went can come home.
std::vector<Move> choose_guests_to_return(const HeapState& heap, DeviceId peer, uint64_t bytes) {
  std::vector<Move> moves = choose_guests(heap, peer, UINT64_MAX);
  std::erase_if(moves, [&](const Move& move) SPILLWAY_REQUIRES(heap.lock) {
    const Piece& last = heap.tiers.spilled.find(move.block)->pieces.back();
    if (last.range.begin != move.range.begin || bytes == 0) return true;
    bytes -= std::min(bytes, move.range.bytes());
    return false;
  });
  for (Move& move : moves) move.tier = Tier::kDevice;
  return moves;
}

double bytes_per_us(const HeapState& heap, Tier tier) {
  return heap.tiers.bandwidth.bytes_per_us(tier);
}

// Of a program that was only seen to get memory nothing can be said: its device had nothing to do.
double slowdown(const HeapState& heap, const std::vector<Move>& moves) {
  const TierState& tiers = heap.tiers;
  const bool steps_known = tiers.steps.us_per_order() != 0;
  if (!steps_known && (tiers.bandwidth.us_per_order() == 0 || !tiers.access.knows_the_program())) return 1;
  double us = 0;  // on the links, for each place in the order
  const auto add = [&](const Block* block, uint64_t bytes, Tier tier) SPILLWAY_REQUIRES(heap.lock) {
    us += heap.tiers.access.of(block, heap.order) * static_cast<double>(bytes) / bytes_per_us(heap, tier);
  };
  for (const auto& [block, there] : tiers.spilled.all())
    for (const Piece& piece : there.pieces) add(block, piece.range.bytes(), piece.tier);
  for (const Move& move : moves) add(move.block, move.range.bytes(), move.tier);
  return steps_known ? tiers.steps.expected(us) : 1 + us / tiers.bandwidth.us_per_order();
}

}  // namespace spillway
