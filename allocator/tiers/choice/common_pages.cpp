#include "allocator/tiers/choice/common_pages.h"

#include <algorithm>
#include <utility>

#include "allocator/tiers/choice/movable.h"

namespace spillway {
namespace {

struct CommonPages {
  Coldness coldness;
  Move move;
};

// How often a byte of the range is used.
double frequency_in(const HeapState& heap, const std::vector<Block*>& blocks, AddressRange range)
    SPILLWAY_REQUIRES(heap.lock) {
  double uses = 0;
  for (const Block* block : blocks)
    if (block->state == BlockState::kLive)
      uses += heap.tiers.access.of(block, heap.order) * static_cast<double>(bytes_in(block, range));
  return uses / static_cast<double>(range.bytes());
}

Coldness coldness_of(const HeapState& heap, const std::vector<Block*>& blocks, AddressRange range)
    SPILLWAY_REQUIRES(heap.lock) {
  Coldness all;
  all.frequency = frequency_in(heap, blocks, range);
  for (const Block* block : blocks) {
    const Coldness one = heap.tiers.access.coldness(block, heap.order);
    all.recent = all.recent || one.recent;
    all.born = std::max(all.born, one.born);
  }
  return all;
}

Move move_to_host(const std::vector<Block*>& blocks, AddressRange range) {
  Move move;
  move.block = blocks.front();
  move.common = true;
  move.others.assign(blocks.begin() + 1, blocks.end());
  move.range = range;
  move.tier = Tier::kHost;
  return move;
}

// All that lie in the range, by address. None: one of them may not go.
std::vector<Block*> movable_blocks(const HeapState& heap, Block* inside, AddressRange range, const Pins& pins)
    SPILLWAY_REQUIRES(heap.lock) {
  Block* block = inside;
  while (block->address > range.begin && block->previous != nullptr) block = block->previous;
  std::vector<Block*> blocks;
  for (; block != nullptr && block->address < range.end; block = block->next) {
    if (block->state == BlockState::kHole) continue;
    if (!may_go(heap, block, Tier::kHost, pins)) return {};
    blocks.push_back(block);
  }
  return blocks;
}

bool may_return(const HeapState& heap, const SpilledBlocks::CommonPiece& common, const Pins& pins)
    SPILLWAY_REQUIRES(heap.lock) {
  return !heap.tiers.spilled.any_moving(common) &&
         !pins.cover(common.piece.range.begin, common.piece.range.bytes());
}

// The page or handle at the block's beginning and at its end, where it does not have them to itself.
std::vector<AddressRange> shared_ranges(const Arena& arena, const Block* block, uint64_t page_bytes,
                                        Grain grain) {
  std::vector<AddressRange> ranges;
  for (const uint64_t at : {block->address, block->end() - 1}) {
    const uint64_t begin = at / page_bytes * page_bytes;
    const AddressRange range =
        grain == Grain::kPages ? AddressRange{begin, begin + page_bytes} : arena.handle_at(begin);
    const bool own = block->address <= range.begin && range.end <= block->end();
    if (!own && (ranges.empty() || ranges.back().begin != range.begin)) ranges.push_back(range);
  }
  return ranges;
}

std::vector<CommonPages> cold_common_pages(const HeapState& heap, Grain grain) SPILLWAY_REQUIRES(heap.lock) {
  std::vector<CommonPages> found;
  uint64_t considered = 0;  // the range before
  const Pins pins = heap.shared.pinned();
  const auto consider = [&](const Arena& arena, Block* block,
                            AddressRange range) SPILLWAY_REQUIRES(heap.lock) {
    if (std::exchange(considered, range.begin) == range.begin) return;
    const CUmemGenericAllocationHandle page = arena.page(range.begin);
    if (!is_page(page) || heap.exports.contains(page)) return;
    const AddressRange handle = arena.handle_at(range.begin);  // free memory may be pinned too
    if (pins.cover(handle.begin, handle.bytes())) return;
    const std::vector<Block*> blocks = movable_blocks(heap, block, range, pins);
    if (blocks.empty()) return;
    found.push_back({coldness_of(heap, blocks, range), move_to_host(blocks, range)});
  };
  for (const auto& arena : heap.tiling.arenas()) {
    if (arena->pool() != 0 || !arena->has_pages() || arena->small()) continue;
    for (const Segment& segment : arena->segments())
      for (Block* block = segment.first; block != nullptr; block = block->next)
        if (block->state == BlockState::kLive)
          for (const AddressRange& range : shared_ranges(*arena, block, heap.page_bytes, grain))
            consider(*arena, block, range);
  }
  std::ranges::stable_sort(found, {}, &CommonPages::coldness);
  return found;
}

}  // namespace

std::vector<Move> common_moves(const HeapState& heap, const Wanted& wanted, uint64_t most_bytes,
                               Grain grain) {
  std::vector<Move> moves;
  uint64_t taken = 0;
  for (CommonPages& pages : cold_common_pages(heap, grain)) {
    const AddressRange range = pages.move.range;
    const bool in_place = range.begin < wanted.place.end && wanted.place.begin < range.end;
    if (in_place || range.bytes() > most_bytes - taken) continue;
    taken += range.bytes();
    moves.push_back(std::move(pages.move));
    if (taken >= wanted.bytes) break;
  }
  return moves;
}

void take_free_parts(HeapState& heap, const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    if (!move.common) continue;
    Arena& arena = heap.tiling.arena_of(move.block);
    for (Block* hole : blocks_in(move.range, move.block, BlockState::kHole))
      arena.claim_pages(hole,
                        {std::max(hole->address, move.range.begin), std::min(hole->end(), move.range.end)});
  }
}

bool any_common_returns(const HeapState& heap, const Pins& pins, uint64_t most_bytes) {
  for (const auto& [unused, common] : heap.tiers.spilled.common())
    if (common.piece.range.bytes() <= most_bytes && may_return(heap, common, pins)) return true;
  return false;
}

std::vector<std::pair<double, Move>> common_returns(const HeapState& heap, const Pins& pins) {
  std::vector<std::pair<double, Move>> found;
  for (const auto& [unused, common] : heap.tiers.spilled.common())
    if (may_return(heap, common, pins))
      found.emplace_back(frequency_in(heap, common.blocks, common.piece.range), return_of(common));
  return found;
}

}  // namespace spillway
