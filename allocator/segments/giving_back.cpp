// Idle allocations, whole, to where they came from.
#include <algorithm>

#include "allocator/accounting/journal.h"
#include "allocator/segments/allocations.h"

namespace spillway {

std::vector<Allocations::Idle> Allocations::take_idle(uint64_t pool, bool of_sources) {
  std::vector<Idle> idle;
  const Locked guard(heap_.lock);
  for (const auto& arena : heap_.tiling.arenas()) {
    if (arena->has_pages() || !arena->gives_pages() || has_own_source(*arena) != of_sources) continue;
    if (pool != kEveryPool && arena->pool() != pool) continue;
    const PoolSettings::Source source = heap_.tiling.pools().source_of(arena->pool());
    arena->each_hole(kUnitBytes, [&](Block* hole) {
      if (is_alone(hole)) idle.push_back({arena.get(), hole, allocation_of(*arena, hole), source});
    });
  }
  for (const Idle& it : idle) it.arena->claim_pages(it.busy, range_of(it.busy));
  return idle;
}

// The driver may refuse to take one back, which then stays.
bool Allocations::free(const Idle& idle) {
  const AddressRange range = idle.given;
  const CUresult result = heap_.device->free(range.begin);
  journal::page(heap_, trace::Kind::kPageRelease, range.begin, range.bytes(), result);
  if (result == CUDA_SUCCESS) journal::tell_pages(heap_, Change::kUnmapped, *idle.arena, units_in(range));
  const Locked guard(heap_.lock);
  if (result != CUDA_SUCCESS) {
    idle.arena->put_hole(idle.busy, idle.busy->tag);
    return false;
  }
  heap_.pages.allocation_is_gone(range.bytes());
  idle.arena->forget_allocation(idle.busy);
  return true;
}

// Another thread may have the address from its source before this one returns: all else is forgotten first.
void Allocations::free_to_source(const Idle& idle) {
  const AddressRange range = idle.given;
  journal::tell_pages(heap_, Change::kUnmapped, *idle.arena, range_of(idle.busy));
  {
    const Locked guard(heap_.lock);
    heap_.pages.unmap(range.bytes());
    idle.arena->forget_allocation(idle.busy);
  }
  journal::page(heap_, trace::Kind::kPageRelease, range.begin, range.bytes(), CUDA_SUCCESS);
  idle.source->free(range.begin, range.bytes());
  const Locked guard(heap_.lock);
  heap_.pages.segment_is_gone(range.bytes());
}

// A graph of a released pool's may still be running on any stream.
uint64_t Allocations::give_back(const std::vector<Idle>& idle) {
  const bool unused = !idle.empty() && drain_.device() == CUDA_SUCCESS;
  uint64_t bytes = 0;
  for (const Idle& it : idle) {
    if (!unused) {
      const Locked guard(heap_.lock);
      it.arena->put_hole(it.busy, it.busy->tag);
    } else if (it.source != nullptr) {
      free_to_source(it);
      bytes += it.given.bytes();
    } else if (free(it)) {
      bytes += it.given.bytes();
    }
  }
  return bytes;
}

uint64_t Allocations::release(uint64_t pool) {
  return give_back(take_idle(pool, false));
}

uint64_t Allocations::release_to_sources(uint64_t pool) {
  const uint64_t bytes = give_back(take_idle(pool, true));
  end_unused_sources();
  return bytes;
}

// They end outside of the lock.
void Allocations::end_unused_sources() {
  std::vector<PoolSettings::Source> unused;
  const Locked guard(heap_.lock);
  unused = heap_.tiling.take_unused_sources();
}

void Allocations::end() {
  std::vector<std::pair<AddressRange, PoolSettings::Source>> left;
  {
    const Locked guard(heap_.lock);
    for (const auto& arena : heap_.tiling.arenas())
      for (const Segment& segment : arena->segments())
        if (has_own_source(*arena))
          left.emplace_back(segment.given, heap_.tiling.pools().source_of(arena->pool()));
  }
  for (const auto& [range, source] : left) source->free(range.begin, range.bytes());
}

}  // namespace spillway
