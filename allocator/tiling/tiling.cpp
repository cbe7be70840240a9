#include "allocator/tiling/tiling.h"

#include <algorithm>

namespace spillway {

void Tiling::look_up(StreamId stream, uint64_t pool, bool small) {
  last_stream_ = stream;
  last_pool_ = pool;
  last_arenas_[0] = last_arenas_[1] = nullptr;
  for (auto& arena : arenas_)
    if (arena->stream() == stream && arena->pool() == pool) last_arenas_[arena->small()] = arena.get();
  if (last_arenas_[small] == nullptr) last_arenas_[small] = &arena_to_make(stream, pool, small);
  if (!last_arenas_[small]->may_ask) last_arenas_[small]->may_ask = known_streams_.may_ask(stream);
}

// One whose stream has ended goes on with its blocks, so that streams that come and go leave no memory
// behind. Not in private pools: a graph may use their free blocks again.
Arena& Tiling::arena_to_make(StreamId stream, uint64_t pool, bool small) {
  for (auto& arena : arenas_)
    if (pool == 0 && arena->pool() == 0 && arena->small() == small && arena->serve_stream(stream))
      return *arena;
  Arena& made = new_arena(stream, pool, small);
  made.may_ask = false;
  return made;
}

Arena& Tiling::new_arena(StreamId stream, uint64_t pool, bool small) {
  const uint32_t flags = pools_.flags_of(pool);
  const PoolMemory memory = memory_of_flags(flags);
  // Address space of pools that are gone is used again.
  for (auto& arena : arenas_) {
    if ((arena->pool_flags & kPoolReleased) == 0 || arena->small() != small || !arena->empty() ||
        arena->memory != memory)
      continue;
    const uint64_t before = arena->pool();
    arena->rename(stream, pool, flags);
    const bool gone = std::none_of(arenas_.begin(), arenas_.end(),
                                   [&](const auto& other) { return other->pool() == before; });
    if (gone) pools_.forget(before);
    return *arena;
  }
  const auto index = static_cast<uint16_t>(arenas_.size());
  arenas_.push_back(std::make_unique<Arena>(index, stream, pool, small, memory, page_bytes_, slab_));
  arenas_.back()->pool_flags = flags;
  return *arenas_.back();
}

bool Tiling::set_flags(uint64_t pool, uint32_t flags) {
  const uint32_t before = pools_.flags_of(pool), holds = pools_.set_flags(pool, flags);
  for (auto& arena : arenas_) {
    if (arena->pool() != pool || arena->memory == memory_of_flags(holds)) continue;
    pools_.set_flags(pool, before);
    return false;
  }
  for (auto& arena : arenas_)
    if (arena->pool() == pool) arena->pool_flags = holds;
  return true;
}

bool Tiling::set_source(uint64_t pool, const PoolSettings::Source& source) {
  for (auto& arena : arenas_)
    if (arena->pool() == pool) return false;
  if ((pools_.flags_of(pool) & kPoolOwnSource) != 0) return false;
  pools_.set_source(pool, source);
  return true;
}

std::vector<PoolSettings::Source> Tiling::take_unused_sources() {
  return pools_.take_unused_sources([&](uint64_t pool) {
    return std::ranges::any_of(
        arenas_, [&](const auto& arena) { return arena->pool() == pool && !arena->segments().empty(); });
  });
}

const Block* Tiling::block_at(uint64_t address, const PageMap& page_map) const {
  for (auto& arena : arenas_) {
    const Segment* segment = arena->segment_of(address);
    if (segment == nullptr) continue;
    const Block* block = page_map.find_below(address, segment->range.begin);
    if (block == nullptr) block = segment->first;
    while (block->end() <= address) block = block->next;
    return block;
  }
  return nullptr;
}

}  // namespace spillway
