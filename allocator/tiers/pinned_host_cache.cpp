#include "allocator/tiers/pinned_host_cache.h"

#include <iterator>

namespace spillway {

std::optional<CUmemGenericAllocationHandle> PinnedHostCache::take(uint64_t bytes) {
  const Locked guard(mutex_);
  auto kept = by_bytes_.extract(bytes);
  return kept.empty() ? std::nullopt : std::optional(kept.mapped());
}

void PinnedHostCache::keep(uint64_t bytes, CUmemGenericAllocationHandle handle) {
  const Locked guard(mutex_);
  by_bytes_.emplace(bytes, handle);
}

uint64_t PinnedHostCache::held() const {
  uint64_t bytes = 0;
  for (const auto& [size, unused] : by_bytes_) bytes += size;
  return bytes;
}

uint64_t PinnedHostCache::bytes() const {
  const Locked guard(mutex_);
  return held();
}

void PinnedHostCache::shrink(uint64_t most_bytes) {
  std::multimap<uint64_t, CUmemGenericAllocationHandle> out;
  {
    const Locked guard(mutex_);
    for (uint64_t left = held(); left > most_bytes;) {
      const auto largest = std::prev(by_bytes_.end());
      left -= largest->first;
      out.insert(by_bytes_.extract(largest));
    }
  }
  std::erase_if(out, [&](const auto& entry) { return device_.release(entry.second) == CUDA_SUCCESS; });
  const Locked guard(mutex_);
  by_bytes_.merge(out);
}

}  // namespace spillway
