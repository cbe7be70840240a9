#include "libtorch/allocator/history/statistics.h"

#include <algorithm>

#include "libtorch/allocator_config.h"

namespace spillway::libtorch {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

void observe(Stat& stat, size_t level) {
  const auto now = static_cast<int64_t>(level);
  if (now > stat.current) stat.increase(static_cast<size_t>(now - stat.current));
  if (now < stat.current) stat.decrease(static_cast<size_t>(stat.current - now));
}

void observe(StatArray& stats, size_t all, size_t small) {
  observe(stats[static_cast<size_t>(StatType::AGGREGATE)], all);
  observe(stats[static_cast<size_t>(StatType::SMALL_POOL)], small);
  observe(stats[static_cast<size_t>(StatType::LARGE_POOL)], all - std::min(all, small));
}

void fill(Stat& stat, uint64_t now, uint64_t peak, uint64_t added, uint64_t removed) {
  stat.current = static_cast<int64_t>(now);
  stat.peak = static_cast<int64_t>(peak);
  stat.allocated = static_cast<int64_t>(added);
  stat.freed = static_cast<int64_t>(removed);
}

void fill(DeviceStats& stats, StatType type, const spillway_usage_levels& levels) {
  const auto index = static_cast<size_t>(type);
  const auto [live, peak, added, freed, active, peak_active, deactivated] = levels;
  fill(stats.allocation[index], live.count, peak.count, added.count, freed.count);
  fill(stats.allocated_bytes[index], live.bytes, peak.bytes, added.bytes, freed.bytes);
  // Natively the bytes that were asked for count until the block is free, those that it takes until it is
  // freed.
  fill(stats.requested_bytes[index], active.requested_bytes, peak_active.requested_bytes,
       added.requested_bytes, deactivated.requested_bytes);
  fill(stats.active[index], active.count, peak_active.count, added.count, deactivated.count);
  fill(stats.active_bytes[index], active.bytes, peak_active.bytes, added.bytes, deactivated.bytes);
}

// Since 2.13. A pool that is gone holds nothing; what was seen of it stays, as natively.
template <class Stats>
void observe_pools(Stats& stats, const std::map<c10::cuda::MempoolId_t, size_t>& pools) {
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
    auto& known = stats.reserved_bytes_by_private_pools;
    for (auto& [pool, levels] : known)
      if (pools.count(pool) == 0) observe(levels, 0, 0);
    for (const auto& [pool, bytes] : pools) observe(known[pool], bytes, 0);
  }
}

// Since 2.12.
template <class Stats>
void set_rejections(Stats& stats, int64_t count) {
  if constexpr (requires { stats.num_oom_rejections; }) stats.num_oom_rejections = count;
}

template <class Stats, class Operation>
void for_each_observed(Stats& stats, Operation operation) {
  for (StatArray* array :
       {&stats.segment, &stats.inactive_split, &stats.reserved_bytes, &stats.inactive_split_bytes}) {
    for (Stat& stat : *array) operation(stat);
  }
  if constexpr (requires { stats.reserved_bytes_by_private_pools; })
    for (auto& [pool, levels] : stats.reserved_bytes_by_private_pools)
      for (Stat& stat : levels) operation(stat);
}

}  // namespace

DeviceStats Statistics::read(const spillway_usage& usage, const Layout& layout) {
  const Locked lock(mutex_);
  const Physical& small = layout.small;
  const Physical& large = layout.large;
  observe(observed_.segment, small.segments + large.segments, small.segments);
  observe(observed_.reserved_bytes, layout.reserved, small.reserved);
  observe(observed_.inactive_split, small.split_blocks + large.split_blocks, small.split_blocks);
  observe(observed_.inactive_split_bytes, small.split_bytes + large.split_bytes, small.split_bytes);
  Stat& reserved = observed_.reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)];
  reserved.peak = std::max(reserved.current, static_cast<int64_t>(layout.peak_reserved));
  observe_pools(observed_, layout.pools);
  failures_ = layout.failures;
  DeviceStats out = observed_;
  out.num_alloc_retries = static_cast<int64_t>(failures_ - failures_at_reset_);
  out.num_ooms = ooms_.load();
  set_rejections(out, rejections_.load());
  // Natively a request that fails at first waits for every stream before it tries again.
  out.num_sync_all_streams = waits_.load() + out.num_alloc_retries;
  out.num_device_alloc = static_cast<int64_t>(usage.maps);
  out.num_device_free = static_cast<int64_t>(usage.unmaps);
  out.max_split_size = static_cast<int64_t>(Config::max_split_size());
  fill(out, StatType::AGGREGATE, usage.all);
  fill(out, StatType::SMALL_POOL, usage.small);
  fill(out, StatType::LARGE_POOL, usage.large);
  return out;
}

void Statistics::oversize_allocated() {
  const Locked lock(mutex_);
  observed_.oversize_allocations.increase(1);
}

void Statistics::oversize_freed() {
  const Locked lock(mutex_);
  observed_.oversize_allocations.decrease(1);
}

void Statistics::reset_accumulated() {
  const Locked lock(mutex_);
  for_each_observed(observed_, [](Stat& stat) { stat.reset_accumulated(); });
  observed_.oversize_allocations.reset_accumulated();
  ooms_ = waits_ = rejections_ = 0;
  failures_at_reset_ = failures_;
}

void Statistics::reset_peaks() {
  const Locked lock(mutex_);
  for_each_observed(observed_, [](Stat& stat) { stat.reset_peak(); });
  observed_.oversize_allocations.reset_peak();
}

}  // namespace spillway::libtorch
