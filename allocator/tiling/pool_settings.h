// What is set for the pools of a device: their flags, and which of them have a source of segments of their
// own.
//
// Thread-safety: guarded by the heap's lock. Ownership: a source ends with the last who has it, which must
// not be under that lock. Errors: none.
#pragma once
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allocator/segments/segment_source.h"
#include "allocator/tiling/pool_memory.h"

namespace spillway {

// A pool's own source. Its functions are called without the heap's lock.
class SegmentSource {
 public:
  explicit SegmentSource(const spillway_segment_source& functions) : functions_(functions) {}
  ~SegmentSource() { functions_.end(functions_.context); }
  SegmentSource(const SegmentSource&) = delete;
  SegmentSource& operator=(const SegmentSource&) = delete;

  uint64_t segment_bytes(uint64_t bytes) const { return functions_.segment_bytes(functions_.context, bytes); }
  uint32_t allocate(uint64_t bytes, uint64_t* address) const {
    return functions_.allocate(functions_.context, bytes, address);
  }
  void free(uint64_t address, uint64_t bytes) const { functions_.free(functions_.context, address, bytes); }

 private:
  const spillway_segment_source functions_;
};

class PoolSettings {
 public:
  using Source = std::shared_ptr<const SegmentSource>;

  explicit PoolSettings(DriverMemory by_default) : by_default_(by_default) {}

  uint32_t flags_of(uint64_t pool) const {
    const auto found = flags_.find(pool);
    return (found == flags_.end() ? 0 : found->second) | flags_by_default(by_default_, pool);
  }
  // As they hold then: what belongs to the pool's source is not the caller's to set.
  uint32_t set_flags(uint64_t pool, uint32_t flags);
  // The pool's number may be used again, once its source has ended.
  void forget(uint64_t pool) {
    if (sources_.contains(pool))
      forgotten_.insert(pool);
    else
      flags_.erase(pool);
  }

  // Null: the driver.
  Source source_of(uint64_t pool) const {
    const auto found = sources_.find(pool);
    return found == sources_.end() ? nullptr : found->second;
  }
  void set_source(uint64_t pool, Source source);
  // Those of released pools of which `is_used` is not true: nothing is asked of them any more.
  template <typename IsUsed>
  std::vector<Source> take_unused_sources(IsUsed is_used) {
    std::vector<Source> unused;
    for (auto it = sources_.begin(); it != sources_.end();) {
      const bool goes = (flags_of(it->first) & kPoolReleased) != 0 && !is_used(it->first);
      if (goes) {
        unused.push_back(std::move(it->second));
        if (forgotten_.erase(it->first) != 0) flags_.erase(it->first);
      }
      it = goes ? sources_.erase(it) : std::next(it);
    }
    return unused;
  }

 private:
  const DriverMemory by_default_;
  std::unordered_map<uint64_t, uint32_t> flags_;  // of those that have any
  std::unordered_map<uint64_t, Source> sources_;
  std::unordered_set<uint64_t> forgotten_;  // of these
};

inline uint32_t PoolSettings::set_flags(uint64_t pool, uint32_t flags) {
  flags &= ~uint32_t{kPoolOwnSource};
  flags |= flags_of(pool) & kPoolOwnSource;
  return flags_[pool] = flags | flags_by_default(by_default_, pool);
}

inline void PoolSettings::set_source(uint64_t pool, Source source) {
  sources_[pool] = std::move(source);
  flags_[pool] = flags_of(pool) | kPoolOwnSource;
}

}  // namespace spillway
