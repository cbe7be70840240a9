#include "allocator/tiers/choice/choose.h"

#include <algorithm>
#include <iterator>

#include "allocator/costs.h"
#include "allocator/tiers/choice/common_pages.h"
#include "allocator/tiers/choice/movable.h"
#include "allocator/tiers/host/host_memory.h"

namespace spillway {
namespace {

// A share of the limit stays free when something comes back.
constexpr uint64_t kMarginShare = 20;

// What of a block is on the device. Its own pieces are its end. A common piece has the block's beginning or
// end; a large handle reaches over whole pages of the block.
AddressRange on_device(const HeapState& heap, Block* block) SPILLWAY_REQUIRES(heap.lock) {
  AddressRange range = range_of(block);
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  if (there == nullptr) return range;
  if (!there->pieces.empty()) range.end = std::min(range.end, there->pieces.back().range.begin);
  for (const uint64_t begin : there->common) {
    if (begin <= block->address)
      range.begin = std::max(range.begin, heap.tiers.spilled.common().at(begin).piece.range.end);
    else
      range.end = std::min(range.end, begin);
  }
  return {range.begin, std::max(range.begin, range.end)};
}

// What of that may go: only what was registered of it to a file.
AddressRange movable(const HeapState& heap, Block* block, Tier where, Grain grain)
    SPILLWAY_REQUIRES(heap.lock) {
  AddressRange range = on_device(heap, block);
  if (where == Tier::kNvme)
    range.end = std::min(range.end, block->address + heap.tiers.registered.find(block)->bytes);
  if (grain == Grain::kHandles) return heap.tiling.arena_of(block).whole_handles(range);
  const uint64_t page = heap.page_bytes;
  range = {(range.begin + page - 1) / page * page, range.end / page * page};
  return {range.begin, std::max(range.begin, range.end)};
}

struct Candidate {
  Coldness coldness;
  Block* block;
};

std::vector<Candidate> cold_blocks(const HeapState& heap, Tier where, Grain grain)
    SPILLWAY_REQUIRES(heap.lock) {
  std::vector<Candidate> cold;
  const Pins pins = heap.shared.pinned();
  const auto consider = [&](Block* block) SPILLWAY_REQUIRES(heap.lock) {
    if (may_go(heap, block, where, pins) && movable(heap, block, where, grain).bytes() != 0)
      cold.push_back({heap.tiers.access.coldness(block, heap.order), block});
  };
  for (const auto& arena : heap.tiling.arenas()) {
    if (arena->pool() != 0 || !arena->has_pages() || arena->small()) continue;
    for (const Segment& segment : arena->segments())
      for (Block* block = segment.first; block != nullptr; block = block->next) consider(block);
  }
  std::ranges::stable_sort(cold, {}, &Candidate::coldness);
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

// To the host by chunks, the block's last first: what was moved stays when memory ends before the rest. A
// handle goes whole.
void add_moves(const Arena& arena, Move move, uint64_t most_bytes, std::vector<Move>* moves) {
  AddressRange left = move.range;
  for (; left.bytes() != 0; left.end = move.range.begin) {
    move.range = last_within(arena, left, most_bytes);
    if (move.range.bytes() == 0) move.range = last_covering(arena, left, 1);
    moves->push_back(move);
  }
}

// How much may go, and how much of that to make a chunk whole.
struct Room {
  uint64_t most_bytes = UINT64_MAX, rounding_bytes = 0;
};

// The end of what is on the device of a block, for `needed` bytes. Returns its bytes.
uint64_t add_end(const HeapState& heap, Block* block, uint64_t needed, const SpillPlace& where, Room room,
                 Grain grain, std::vector<Move>* moves) SPILLWAY_REQUIRES(heap.lock) {
  const Arena& arena = heap.tiling.arena_of(block);
  const AddressRange whole = movable(heap, block, where.tier, grain);
  const uint64_t bytes = bytes_to_take(heap, whole.bytes(), needed, where.tier, room.rounding_bytes);
  Move move{.block = block, .range = whole, .tier = where.tier, .peer = where.peer};
  if (grain == Grain::kPages) {
    move.range = {whole.end - bytes, whole.end};
    moves->push_back(move);
  } else {
    move.range = last_within(arena, last_covering(arena, whole, bytes), room.most_bytes);
    add_moves(arena, move, where.tier == Tier::kHost ? host_chunk_bytes(heap.page_bytes) : UINT64_MAX, moves);
  }
  return move.range.bytes();
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

// The pieces that went last are the first to come: what stays elsewhere remains the block's end.
std::vector<Move> returns_of(Block* block, const std::vector<Piece>& pieces) {
  std::vector<Move> moves;
  for (auto piece = pieces.rbegin(); piece != pieces.rend() && piece->tier != Tier::kNvme; ++piece)
    moves.push_back(return_of(block, *piece));
  return moves;
}

bool any_of_block(const std::vector<Move>& moves, const Block* block) {
  return std::any_of(moves.begin(), moves.end(), [&](const Move& move) { return move.block == block; });
}

}  // namespace

std::vector<Move> own_moves(const HeapState& heap, uint64_t bytes, const SpillPlace& where,
                            uint64_t most_bytes, Grain grain) {
  std::vector<Move> moves;
  uint64_t taken = 0;
  bytes = std::min(bytes, most_bytes / heap.page_bytes * heap.page_bytes);
  for (const Candidate& candidate : cold_blocks(heap, where.tier, grain)) {
    if (bytes == 0) break;
    const Room room{.most_bytes = most_bytes - taken,
                    .rounding_bytes = where.most_bytes - std::min(where.most_bytes, taken)};
    const uint64_t end = add_end(heap, candidate.block, bytes, where, room, grain, &moves);
    taken += end;
    bytes -= std::min(bytes, end);
  }
  return moves;
}

std::vector<Move> choose_moves(const HeapState& heap, const Wanted& wanted, const SpillPlace& where,
                               uint64_t most_bytes, Grain grain) {
  std::vector<Move> moves = own_moves(heap, wanted.bytes + wanted.ahead_bytes, where, most_bytes, grain);
  const uint64_t own = bytes_of(moves);
  if (own >= wanted.bytes || where.tier != Tier::kHost) return moves;
  const Wanted more{.bytes = wanted.bytes + wanted.ahead_bytes - own, .place = wanted.place};
  std::ranges::move(common_moves(heap, more, most_bytes - own, grain), std::back_inserter(moves));
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
  if (room == 0) return 0;
  const Pins pins = heap.shared.pinned();
  for (const auto& [block, there] : heap.tiers.spilled.all())
    if (may_return(block, there, pins) && there.pieces.back().range.bytes() <= room) return room;
  return any_common_returns(heap, pins, room) ? room : 0;
}

std::vector<Move> choose_returns(const HeapState& heap, uint64_t most_bytes) {
  std::vector<std::pair<double, std::vector<Move>>> groups;  // by what their return is worth
  const Pins pins = heap.shared.pinned();
  for (const auto& [block, there] : heap.tiers.spilled.all())
    if (may_return(block, there, pins))
      groups.emplace_back(
          heap.tiers.access.of(block, heap.order) / bytes_per_us(heap, there.pieces.back().tier),
          returns_of(block, there.pieces));
  for (auto& [uses, move] : common_returns(heap, pins))
    groups.emplace_back(uses / bytes_per_us(heap, Tier::kHost), std::vector<Move>{std::move(move)});
  std::ranges::stable_sort(groups, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Move> moves;
  for (auto& [unused, group] : groups) {
    for (Move& move : group) {
      if (move.range.bytes() > most_bytes) break;
      most_bytes -= move.range.bytes();
      moves.push_back(std::move(move));
    }
  }
  return moves;
}

// Only for a gain that is sure: counts of uses are rough, and the device stands still for it. Of a block that
// is no older than a step or two, as an activation, they say nothing. A block goes one way, once: what is
// left of it goes the next time. Common pieces wait for room.
Exchange choose_exchange(const HeapState& heap, const SpillPlace& where) {
  constexpr double kGain = 4;
  const uint64_t young = 2 * heap.tiers.steps.orders();
  Exchange exchange;
  const std::vector<Candidate> cold = cold_blocks(heap, where.tier, Grain::kHandles);
  auto next = cold.begin();
  uint64_t left = where.most_bytes;
  for (Move& move : choose_returns(heap, UINT64_MAX)) {
    if (move.common || heap.order - AccessFrequency::born(move.block) < young) continue;
    const double most = heap.tiers.access.of(move.block, heap.order) / kGain;
    uint64_t needed = move.range.bytes();
    std::vector<Move> out;
    for (; needed != 0 && next != cold.end() && !next->coldness.recent && next->coldness.frequency < most;
         ++next) {
      if (any_of_block(exchange.in, next->block) || next->block == move.block) continue;
      needed -= std::min(needed, add_end(heap, next->block, needed, where, {}, Grain::kHandles, &out));
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
  std::vector<std::pair<const Block*, const Piece*>> there;
  tiers.spilled.each_piece(
      [&](const Block* block, const Piece& piece) { there.emplace_back(block, &piece); });
  for (const auto& [block, piece] : there) add(block, bytes_in(block, piece->range), piece->tier);
  for (const Move& move : moves)
    for (const Block* block : blocks_of(move)) add(block, bytes_in(block, move.range), move.tier);
  return steps_known ? tiers.steps.expected(us) : 1 + us / tiers.bandwidth.us_per_order();
}

}  // namespace spillway
