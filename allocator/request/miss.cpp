#include "allocator/request/miss.h"

#include <algorithm>

namespace spillway {

uint64_t room_for(const HeapState& heap, const Miss& miss) {
  const Quota& quota = heap.pages.quota();
  return miss.source != nullptr ? quota.room_below_limit() : quota.room();
}

uint64_t obtainable(const HeapState& heap, const Miss& miss) {
  return miss.refused ? heap.pages.at_hand(miss.pages) : heap.pages.obtainable(miss.pages);
}

Arena& arena_of(HeapState& heap, const Miss& miss) {
  return heap.tiling.arena_for(miss.request.stream, miss.request.pool, miss.size <= kSmallBytes);
}

bool lends_to(const HeapState&, const Arena& arena, const Miss& miss) {
  return (arena.pool_flags & kPoolLends) != 0 && miss.request.pool == 0 &&
         arena.stream() == miss.request.stream && arena.small() == (miss.size <= kSmallBytes);
}

bool fits(const HeapState&, const Miss& miss) {
  return !miss.pages_only && miss.arena->best(miss.size) != nullptr;
}

std::optional<Placement> place_for(const HeapState&, const Miss& miss, uint64_t has, uint64_t idle) {
  if (!miss.pages_only) return miss.arena->plan(miss.size, has, idle);
  Placement pages;
  pages.need_bytes = miss.size;
  return pages.need_bytes <= has + idle ? std::optional(pages) : std::nullopt;
}

void take_place(const HeapState&, Miss& miss, const Placement& placement) {
  miss.place = {.arena = miss.arena, .placement = placement};
  if (!miss.pages_only) miss.place.claim = miss.arena->claim(placement, &miss.place.voids);
}

uint64_t short_of_single(const HeapState& heap, const Miss& miss) {
  const uint64_t page = heap.page_bytes, needed = (miss.size + page - 1) / page * page;
  const uint64_t have = miss.refused ? 0 : miss.pages.promised_bytes + room_for(heap, miss);
  return needed - std::min(needed, have);
}

}  // namespace spillway
