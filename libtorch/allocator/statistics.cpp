#include "libtorch/allocator/statistics.h"

#include <algorithm>

namespace spillway::libtorch {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

constexpr size_t kSmallRequest = size_t{1} << 20;

size_t pool_of(size_t bytes) {
  return static_cast<size_t>(bytes <= kSmallRequest ? StatType::SMALL_POOL : StatType::LARGE_POOL);
}

void increase(StatArray& stats, size_t pool, size_t amount) {
  stats[0].increase(amount);
  stats[pool].increase(amount);
}

void decrease(StatArray& stats, size_t pool, size_t amount) {
  stats[0].decrease(amount);
  stats[pool].decrease(amount);
}

// A level that is known only when it is asked for. Its turnover is what was seen of it.
void observe(Stat& stat, size_t level) {
  const auto now = static_cast<int64_t>(level);
  if (now > stat.current) stat.increase(static_cast<size_t>(now - stat.current));
  if (now < stat.current) stat.decrease(static_cast<size_t>(stat.current - now));
}

void observe_large(StatArray& stats, size_t level) {
  observe(stats[0], level);
  observe(stats[static_cast<size_t>(StatType::LARGE_POOL)], level);
}

template <class Operation>
void for_each_array(c10::CachingDeviceAllocator::DeviceStats& stats, Operation operation) {
  for (StatArray* array :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (Stat& stat : *array) operation(stat);
  }
}

}  // namespace

void Statistics::allocated(size_t requested) {
  const size_t bytes = rounded(requested);
  const size_t pool = pool_of(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  increase(stats_.allocation, pool, 1);
  increase(stats_.allocated_bytes, pool, bytes);
  increase(stats_.requested_bytes, pool, requested);
  increase(stats_.active, pool, 1);
  increase(stats_.active_bytes, pool, bytes);
}

void Statistics::freed(size_t requested) {
  const size_t bytes = rounded(requested);
  const size_t pool = pool_of(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  decrease(stats_.allocation, pool, 1);
  decrease(stats_.allocated_bytes, pool, bytes);
  decrease(stats_.requested_bytes, pool, requested);
  decrease(stats_.active, pool, 1);
  decrease(stats_.active_bytes, pool, bytes);
}

void Statistics::out_of_memory() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.num_ooms;
}

c10::CachingDeviceAllocator::DeviceStats Statistics::read(const Layout& layout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  observe_large(stats_.segment, layout.segments);
  observe_large(stats_.reserved_bytes, layout.reserved);
  observe_large(stats_.inactive_split, layout.split_blocks);
  observe_large(stats_.inactive_split_bytes, layout.split_bytes);
  for (Stat* stat : {&stats_.reserved_bytes[0], &stats_.reserved_bytes[2]}) {
    stat->peak = std::max(stat->current, static_cast<int64_t>(layout.peak_reserved));
  }
  failures_ = layout.failures;
  c10::CachingDeviceAllocator::DeviceStats out = stats_;
  out.num_alloc_retries = static_cast<int64_t>(failures_ - failures_at_reset_);
  // Freed while another stream still uses it: not allocated any more, active until then.
  increase(out.active, static_cast<size_t>(StatType::LARGE_POOL), layout.pending_blocks);
  increase(out.active_bytes, static_cast<size_t>(StatType::LARGE_POOL), layout.pending_bytes);
  return out;
}

void Statistics::reset_accumulated() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each_array(stats_, [](Stat& stat) { stat.reset_accumulated(); });
  stats_.num_ooms = 0;
  failures_at_reset_ = failures_;
}

void Statistics::reset_peaks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each_array(stats_, [](Stat& stat) { stat.reset_peak(); });
}

size_t Statistics::allocated_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(stats_.allocated_bytes[0].current);
}

}  // namespace spillway::libtorch
