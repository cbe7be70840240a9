#include "allocator/request/block_provider.h"

#include <algorithm>

namespace spillway {

Served BlockProvider::serve_or_collect(Miss& miss) {
  Served served = serve(miss);
  if (served == Served::kShort && allocations_.release(kEveryPool) != 0) served = serve(miss);
  if (served == Served::kShort && collect(miss)) served = serve(miss);
  if (served == Served::kShort && borrow(miss)) served = Served::kYes;
  return served;
}

Served BlockProvider::serve(Miss& miss) {
  look_beside_reserve(miss.size);
  if (miss.pages_only) return growth_.get_pages(miss);
  Arena* arena = nullptr;
  if (serve_from_own(miss, miss.size <= kSmallBytes, &arena)) return Served::kYes;
  if (!arena->has_pages()) {
    if (const Served made = allocations_.make(miss); made != Served::kShort) return made;
  } else if (growth_.claim_place(miss)) {
    return growth_.fill(miss);
  }
  if (miss.error != CUDA_SUCCESS) return Served::kFailed;
  // The last resort of a small request, also where there are no addresses for it: a hole among the large
  // ones.
  return arena->small() && serve_from_own(miss, false, &arena) ? Served::kYes : Served::kShort;
}

// Among large blocks a small one takes more, so that no two begin in the same slot of the page map.
bool BlockProvider::take_hole(Miss& miss, Arena& arena, journal::BlockRecord* served) {
  const uint64_t size = arena.small() ? miss.size : std::max(miss.size, kSmallBytes + kUnitBytes);
  Block* hole = heap_.tiling.find_hole(arena, size, miss.waits());
  if (hole == nullptr) return false;
  Block* block = arena.take(hole, size, miss.request.bytes);
  *served = {.kind = trace::Kind::kAllocate,
             .order = heap_.commit(block),
             .address = block->address,
             .bytes = block->size,
             .requested = miss.request.bytes,
             .stream = miss.request.stream,
             .value = miss.request.pool};
  heap_.note_need();
  miss.address = block->address;
  miss.served = true;
  return true;
}

bool BlockProvider::serve_from_own(Miss& miss, bool small, Arena** arena) {
  journal::BlockRecord served;
  {
    const Locked guard(heap_.lock);
    *arena = &heap_.tiling.arena_for(miss.request.stream, miss.request.pool, small);
    if (!take_hole(miss, **arena, &served)) return false;
  }
  journal::block(heap_, served);
  return true;
}

// Not inside a strategy, which holds locks, and not in a capture, which a query of events would break.
bool BlockProvider::collect(const Miss& miss) {
  void (*const collector)(int32_t) = heap_.shared.collector.load();
  if (inside_handler || heap_.device->capturing(miss.request.stream)) return false;
  if (collector != nullptr) collector(static_cast<int32_t>(heap_.device->id()));
  return allocations_.release_to_sources(kEveryPool) != 0 || collector != nullptr;
}

uint64_t BlockProvider::release_cached(const Miss& miss) {
  if (heap_.device->capturing(miss.request.stream)) return 0;
  reclaimer_.drain_all();
  return reclaimer_.release_spare(UINT64_MAX) + allocations_.release(kEveryPool) +
         allocations_.release_to_sources(kEveryPool) +
         reclaimer_.release_idle(UINT64_MAX, kEveryPool, Round::kDown);
}

Served BlockProvider::ask_source(Miss& miss) {
  Served served = allocations_.ask(miss);
  if (served == Served::kShort && release_cached(miss) != 0) served = allocations_.ask(miss);
  Arena* arena = nullptr;
  const bool has_last_resort = served == Served::kShort && miss.size <= kSmallBytes;
  return has_last_resort && serve_from_own(miss, false, &arena) ? Served::kYes : served;
}

// From a pool that lends its free blocks.
bool BlockProvider::borrow(Miss& miss) {
  if (miss.pages_only) return false;
  journal::BlockRecord served;
  {
    const Locked guard(heap_.lock);
    for (const auto& arena : heap_.tiling.arenas())
      if (lends_to(heap_, *arena, miss) && take_hole(miss, *arena, &served)) break;
  }
  if (miss.served) journal::block(heap_, served);
  return miss.served;
}

uint64_t BlockProvider::left_to_libraries() const {
  constexpr uint64_t kSmallCardsShare = 64;
  const uint64_t most = heap_.device->has_libraries() ? heap_.shared.left_to_libraries.load() : 0;
  return std::min(most, heap_.device->total_bytes() / kSmallCardsShare);
}

// The driver is asked only where something is reserved, and not under the lock. Where the user has reserved
// nothing it is asked as the card's end comes near: it may take milliseconds to answer.
void BlockProvider::look_beside_reserve(uint64_t size) {
  constexpr uint64_t kNearEndShare = 16;
  const spillway_budget* budget = heap_.shared.budget;
  const bool reserves = budget != nullptr && budget::read(budget->reserve_bytes) != 0;
  const uint64_t left = left_to_libraries();
  {
    const Locked guard(heap_.lock);
    Quota& quota = heap_.pages.quota();
    const uint64_t near = size + heap_.device->total_bytes() / kNearEndShare;
    if (!reserves && left != 0 && quota.beside_reserve() != UINT64_MAX && quota.beside_reserve() > near)
      return;
    if (!reserves && left == 0) return quota.see_free(UINT64_MAX);
  }
  const uint64_t free = heap_.device->free_bytes(UINT64_MAX);
  const Locked guard(heap_.lock);
  heap_.pages.quota().see_free(free, left);
}

}  // namespace spillway
