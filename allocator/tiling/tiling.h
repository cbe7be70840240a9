// All arenas of one device: which bytes belong to which block, and which free ones a waiting request keeps.
//
// Thread-safety: guarded by the heap's lock. Ownership: of the arenas and their blocks; pages are the page
// pool's. Invariants: those of each arena; an arena's pool flags are those of its pool.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/pages/supply/page_reservation.h"
#include "allocator/tiers/choice/pins.h"
#include "allocator/tiling/arena.h"
#include "allocator/tiling/page_map.h"
#include "allocator/tiling/pool_settings.h"

namespace spillway {

// Whole handles of a free block, taken out of it as one busy block.
struct IdleRange {
  Arena* arena;
  Block* busy;
  AddressRange range;
  bool unmapped = false;
};

// Whole handles in free blocks, of arenas that give pages, without pinned ones; drained: nothing queued can
// touch them any more.
struct IdleBytes {
  uint64_t drained = 0, all = 0;
};
AddressRange movable_handles(const Arena& arena, const Block* hole, const Pins& pins);

class Tiling {
 public:
  Tiling(uint8_t device, uint64_t page_bytes, const StreamKnowledge& known,
         DriverMemory driver_memory = DriverMemory::kNoPools)
      : page_bytes_(page_bytes), known_streams_(known), slab_(device), pools_(driver_memory) {}
  // Ranges that must stay where they are, used or free. `pins` may change; null: none.
  void follow_pins(const std::atomic<Pins (*)()>* pins) { pins_ = pins; }

  // Made when first asked for.
  Arena& arena_for(StreamId stream, uint64_t pool, bool small) {
    if (last_arenas_[small] == nullptr || last_stream_ != stream || last_pool_ != pool) [[unlikely]]
      look_up(stream, pool, small);
    return *last_arenas_[small];
  }
  Arena& arena_of(const Block* block) const { return *arenas_[block->arena]; }
  const std::vector<std::unique_ptr<Arena>>& arenas() const { return arenas_; }

  const PoolSettings& pools() const { return pools_; }
  // These two: false, and nothing changes, where what the pool's memory is would change too late.
  [[nodiscard]] bool set_flags(uint64_t pool, uint32_t flags);
  [[nodiscard]] bool set_source(uint64_t pool, const PoolSettings::Source& source);
  // Of released pools without a segment. They end with who has them now.
  std::vector<PoolSettings::Source> take_unused_sources();

  // The block that holds `address`, its first byte or any other; null where none of this device does.
  const Block* block_at(uint64_t address, const PageMap& page_map) const;
  // Every block, by arena and address, for a range-based `for`.
  class Blocks;
  Blocks blocks() const;

  // Free blocks of `arena` of at least `bytes` are left to the request whose handler runs.
  void keep(const Arena& arena, uint64_t bytes) { kept_arena_ = &arena, kept_bytes_ = bytes; }
  void keep_nothing() { kept_arena_ = nullptr; }
  // The size from which free blocks are kept. `waits`: the request that they are kept for asks.
  uint64_t kept_bytes(const Arena& arena, bool waits) const {
    return &arena == kept_arena_ && !waits ? kept_bytes_ : UINT64_MAX;
  }
  Block* find_hole(const Arena& arena, uint64_t size, bool waits = false) const {
    Block* hole = arena.best(size);
    return hole != nullptr && hole->size >= kept_bytes(arena, waits) ? nullptr : hole;
  }

  // idle.cpp
  IdleBytes idle_bytes() const;
  // Takes whole idle handles out, as busy blocks, from the largest holes first: that leaves the fewest gaps.
  std::vector<IdleRange> take_idle(uint64_t bytes, uint64_t pool = kEveryPool, Round round = Round::kUp);
  // The arena with the most idle bytes that queued work may still touch; null: none has any.
  Arena* most_undrained(const std::vector<Arena*>& skipped) const;
  // What was queued before `order` on the stream, or on any stream, is over.
  void drained(std::optional<StreamId> stream, uint64_t order);
  // The same for the whole device. Not of a pool that has not been released: a graph may use its holes again.
  void all_is_drained(uint64_t order);
  // About which the driver may be asked.
  std::vector<StreamId> streams() const;
  bool uses(StreamId stream) const;
  // The stream is about to be destroyed; `over`: nothing is queued on it.
  void stream_ends(StreamId stream, bool over, uint64_t order);

 private:
  // A drained hole with whole handles in it.
  struct IdleHole {
    Arena* arena;
    Block* hole;
    AddressRange whole;
  };
  Pins pinned() const {
    Pins (*const source)() = pins_ == nullptr ? nullptr : pins_->load();
    return source == nullptr ? Pins{} : source();
  }
  std::vector<IdleHole> idle_holes(uint64_t pool) const;  // the largest first
  std::optional<IdleRange> take_larger_handle(uint64_t pool);
  void look_up(StreamId stream, uint64_t pool, bool small);
  Arena& arena_to_make(StreamId stream, uint64_t pool, bool small);
  Arena& new_arena(StreamId stream, uint64_t pool, bool small);

  StreamId last_stream_{};
  uint64_t last_pool_ = 0;
  Arena* last_arenas_[2] = {nullptr, nullptr};  // large, small
  const uint64_t page_bytes_;
  const StreamKnowledge& known_streams_;
  const std::atomic<Pins (*)()>* pins_ = nullptr;
  const Arena* kept_arena_ = nullptr;
  uint64_t kept_bytes_ = 0;
  BlockSlab slab_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  PoolSettings pools_;
};

class Tiling::Blocks {
 public:
  class Iterator {
   public:
    Iterator(const std::vector<std::unique_ptr<Arena>>& arenas, size_t arena)
        : arenas_(arenas), arena_(arena) {
      settle();
    }
    Block* operator*() const { return block_; }
    Iterator& operator++() {
      block_ = block_->next;
      if (block_ == nullptr) ++segment_;
      settle();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return arena_ != other.arena_ || block_ != other.block_; }

   private:
    // To the first block of the next segment that has one, where this one has ended.
    void settle() {
      for (; block_ == nullptr && arena_ < arenas_.size(); ++arena_, segment_ = 0)
        for (const auto& segments = arenas_[arena_]->segments(); segment_ < segments.size(); ++segment_)
          if (block_ = segments[segment_].first; block_ != nullptr) return;
    }

    const std::vector<std::unique_ptr<Arena>>& arenas_;
    size_t arena_, segment_ = 0;
    Block* block_ = nullptr;
  };

  explicit Blocks(const std::vector<std::unique_ptr<Arena>>& arenas) : arenas_(arenas) {}
  Iterator begin() const { return {arenas_, 0}; }
  Iterator end() const { return {arenas_, arenas_.size()}; }

 private:
  const std::vector<std::unique_ptr<Arena>>& arenas_;
};

inline Tiling::Blocks Tiling::blocks() const {
  return Blocks(arenas_);
}

}  // namespace spillway
