#include "allocator/tiers/choice/choose.h"

#include <algorithm>

namespace spillway {
namespace {

// A share of the limit stays free when something comes back.
constexpr uint64_t kMarginShare = 20;

// What of a block is on the device and may go: what is behind it went before.
AddressRange movable(const HeapState& heap, Block* block, Tier where, Grain grain)
    SPILLWAY_REQUIRES(heap.lock) {
  AddressRange range{block->address, block->end()};
  if (where == Tier::kNvme)  // only what was registered of it
    range.end = std::min(range.end, block->address + heap.tiers.registered.find(block)->bytes);
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  if (there != nullptr && !there->pieces.empty())
    range.end = std::min(range.end, there->pieces.back().range.begin);
  if (grain == Grain::kHandles) return heap.tiling.arena_of(block).whole_handles(range);
  const uint64_t page = heap.page_bytes;
  range = {(range.begin + page - 1) / page * page, range.end / page * page};
  return {range.begin, std::max(range.begin, range.end)};
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

std::vector<Candidate> cold_blocks(const HeapState& heap, Tier where, Grain grain)
    SPILLWAY_REQUIRES(heap.lock) {
  std::vector<Candidate> cold;
  const Pins pins = heap.shared.pinned();
  const auto consider = [&](Block* block) SPILLWAY_REQUIRES(heap.lock) {
    if (may_move(heap, block, pins) && may_go(heap, block, where) &&
        movable(heap, block, where, grain).bytes() != 0)
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

// What lies in a file comes back when the program says that it uses it.
bool returns_by_itself(const SpilledBlocks::Spilled& there) {
  return !there.moving && !there.pieces.empty() && there.pieces.back().tier != Tier::kNvme;
}

bool may_return(const Block* block, const SpilledBlocks::Spilled& there, const Pins& pins) {
  return block->state == BlockState::kLive && returns_by_itself(there) &&
         !pins.cover(block->address, block->size);
}

bool direct(const Peers& peers, DeviceId peer) {
  return std::any_of(peers.reachable.begin(), peers.reachable.end(),
                     [&](const Peer& known) { return known.device == peer && known.direct; });
}

}  // namespace

std::vector<Move> choose_moves(const HeapState& heap, uint64_t bytes, const SpillPlace& where,
                               uint64_t most_bytes, Grain grain) {
  std::vector<Move> moves;
  const uint64_t page = heap.page_bytes;
  bytes = std::min(bytes, most_bytes / page * page);
  for (const Candidate& candidate : cold_blocks(heap, where.tier, grain)) {
    if (bytes == 0) break;
    const Arena& arena = heap.tiling.arena_of(candidate.block);
    const AddressRange whole = movable(heap, candidate.block, where.tier, grain);
    const uint64_t pages = std::min(whole.bytes(), (bytes - 1) / page * page + page);
    const AddressRange range = grain == Grain::kPages
                                   ? AddressRange{whole.end - pages, whole.end}
                                   : last_within(arena, last_covering(arena, whole, pages), most_bytes);
    if (range.bytes() == 0) continue;
    moves.push_back({.block = candidate.block, .range = range, .tier = where.tier, .peer = where.peer});
    bytes -= std::min(bytes, range.bytes());
    most_bytes -= std::min(most_bytes, range.bytes());
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

// The last piece that went is the first to come: what stays elsewhere remains the block's end.
std::vector<Move> choose_returns(const HeapState& heap, uint64_t most_bytes) {
  std::vector<std::pair<double, Block*>> blocks;
  const Pins pins = heap.shared.pinned();
  for (const auto& [block, there] : heap.tiers.spilled.all()) {
    if (!may_return(block, there, pins)) continue;
    const Piece& last = there.pieces.back();
    blocks.emplace_back(heap.tiers.access.of(block, heap.order) / bytes_per_us(heap, last.tier, last.peer),
                        block);
  }
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Move> moves;
  for (const auto& [unused, block] : blocks) {
    const Piece& piece = heap.tiers.spilled.find(block)->pieces.back();
    if (piece.range.bytes() > most_bytes) continue;
    most_bytes -= piece.range.bytes();
    moves.push_back({.block = block,
                     .range = piece.range,
                     .was = piece.tier,
                     .from = {{piece.handle, piece.range.bytes()}}});
  }
  return moves;
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
      moves.push_back({.block = block,
                       .range = piece.range,
                       .tier = Tier::kHost,
                       .was = Tier::kPeer,
                       .from = {{piece.handle, piece.range.bytes()}}});
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

double bytes_per_us(const HeapState& heap, Tier tier, DeviceId peer) {
  return heap.tiers.bandwidth.bytes_per_us(tier, tier == Tier::kPeer && direct(heap.tiers.peers, peer));
}

// Of a program that was only seen to get memory nothing can be said: its device had nothing to do.
double slowdown(const HeapState& heap, const std::vector<Move>& moves) {
  const TierState& tiers = heap.tiers;
  if (tiers.bandwidth.us_per_order() == 0 || !tiers.access.knows_the_program()) return 1;
  double us = 0;  // on the links, for each place in the order
  const auto add = [&](const Block* block, uint64_t bytes, Tier tier, DeviceId peer)
                       SPILLWAY_REQUIRES(heap.lock) {
                         us += heap.tiers.access.of(block, heap.order) * static_cast<double>(bytes) /
                               bytes_per_us(heap, tier, peer);
                       };
  for (const auto& [block, there] : tiers.spilled.all())
    for (const Piece& piece : there.pieces) add(block, piece.range.bytes(), piece.tier, piece.peer);
  for (const Move& move : moves) add(move.block, move.range.bytes(), move.tier, move.peer);
  return 1 + us / tiers.bandwidth.us_per_order();
}

}  // namespace spillway
