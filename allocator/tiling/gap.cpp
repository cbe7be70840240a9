#include "allocator/tiling/gap.h"

#include <algorithm>

namespace spillway {
namespace {

// In the direction of `step`. A place that ends in a void has as much of it as there are pages left.
uint64_t longest_from(const Block* first, Block* Block::* step, uint64_t have_bytes) {
  uint64_t most = 0, bytes = 0, voids = 0;  // of the blocks from `begin` to `end`
  const auto void_bytes = [](const Block* block) {
    return block->state == BlockState::kVoid ? block->size : 0;
  };
  const auto reaches = [](const Block* block) { return block != nullptr && is_free(block); };
  const Block* end = first;
  for (const Block* begin = first; reaches(begin); begin = begin->*step) {
    for (; reaches(end) && void_bytes(end) <= have_bytes - voids; end = end->*step) {
      bytes += end->size;
      voids += void_bytes(end);
    }
    most = std::max(most, bytes + (reaches(end) ? have_bytes - voids : 0));
    if (end == begin) {
      end = end->*step;
      continue;
    }
    bytes -= begin->size;
    voids -= void_bytes(begin);
  }
  return most;
}

}  // namespace

std::optional<Gap> gap_from(const Block* first_void) {
  Gap gap{first_void, first_void};
  while (gap.first->previous != nullptr && is_free(gap.first->previous)) {
    gap.first = gap.first->previous;
    if (gap.first->state == BlockState::kVoid) return std::nullopt;
  }
  while (gap.last->next != nullptr && is_free(gap.last->next)) gap.last = gap.last->next;
  return gap;
}

uint64_t longest_place(const Gap& gap, uint64_t have_bytes) {
  return std::max(longest_from(gap.first, &Block::next, have_bytes),
                  longest_from(gap.last, &Block::previous, have_bytes));
}

}  // namespace spillway
