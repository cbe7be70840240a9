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
      if (is_alone(hole)) idle.push_back({arena.get(), hole, source});
    });
  }
  for (const Idle& it : idle) it.arena->claim_pages(it.busy, range_of(it.busy));
  return idle;
}

// A source's memory is told gone before another thread can have it again.
bool Allocations::free(const Idle& idle) {
  const AddressRange range = range_of(idle.busy);
  if (idle.source != nullptr) {
    journal::tell_pages(heap_, Change::kUnmapped, *idle.arena, range);
    idle.source->free(range.begin, range.bytes());
  }
  const CUresult result = idle.source != nullptr ? CUDA_SUCCESS : heap_.device->free(range.begin);
  journal::page(heap_, trace::Kind::kPageRelease, range.begin, range.bytes(), result);
  if (idle.source == nullptr && result == CUDA_SUCCESS)
    journal::tell_pages(heap_, Change::kUnmapped, *idle.arena, range);
  return result == CUDA_SUCCESS;
}

// A graph of a released pool's may still be running on any stream.
uint64_t Allocations::give_back(const std::vector<Idle>& idle) {
  const bool unused = !idle.empty() && drain_.device() == CUDA_SUCCESS;
  uint64_t bytes = 0;
  for (const Idle& it : idle) {
    const bool gone = unused && free(it);
    const Locked guard(heap_.lock);
    if (!gone) {
      it.arena->put_hole(it.busy, it.busy->tag);
      continue;
    }
    bytes += it.busy->size;
    if (it.source == nullptr)
      heap_.pages.allocation_is_gone(it.busy->size);
    else
      heap_.pages.segment_is_gone(it.busy->size);
    it.arena->forget_allocation(it.busy);
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
          left.emplace_back(segment.range, heap_.tiling.pools().source_of(arena->pool()));
  }
  for (const auto& [range, source] : left) source->free(range.begin, range.bytes());
}

}  // namespace spillway
