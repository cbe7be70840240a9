// What PyTorch asks the allocator to tell: statistics, snapshots, observers.
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <bit>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/segments.h"

namespace spillway::libtorch {
namespace {

bool is(const spillway_block_info& block, BlockState state) {
  return block.state == static_cast<uint32_t>(state);
}

native::SegmentInfo describe(const Segment& segment, c10::DeviceIndex device) {
  native::SegmentInfo info;
  info.device = device;
  info.address = segment.address;
  info.total_size = segment.bytes;
  info.is_large = true;
  info.is_expandable = true;
  for (const spillway_block_info& block : segment.blocks) {
    native::BlockInfo part;
    part.size = block.bytes;
    part.allocated = is(block, BlockState::kLive);
    part.active = !is(block, BlockState::kFree);
    part.requested_size = part.active ? block.requested_bytes : 0;
    info.requested_size += part.requested_size;
    if (part.allocated) info.allocated_size += part.size;
    if (part.active) {
      info.active_size += part.size;
      info.stream = std::bit_cast<void*>(block.stream);
    }
    info.blocks.push_back(std::move(part));
  }
  return info;
}

}  // namespace

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(c10::DeviceIndex index) {
  return device(index).statistics.read(usage_of(index), layout_of(index));
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex index) {
  device(index).statistics.reset_accumulated();
  core().table->reset_totals(index);
}

void Allocator::resetPeakStats(c10::DeviceIndex index) {
  device(index).statistics.reset_peaks();
  core().reset_peaks(index);
}

void Allocator::cacheInfo(c10::DeviceIndex index, size_t* largest_block) {
  static_cast<void>(device(index));
  for (const Segment& segment : segments_of(index)) {
    for (const spillway_block_info& block : segment.blocks) {
      if (is(block, BlockState::kFree)) *largest_block = std::max<size_t>(*largest_block, block.bytes);
    }
  }
}

void* Allocator::getBaseAllocation(void* address, size_t* bytes) {
  spillway_block_info block{};
  if (core().table->find_block(address, &block) != SPILLWAY_OK)
    return before_->getBaseAllocation(address, bytes);
  for (const Segment& segment : segments_of(block.device)) {
    if (block.address < segment.address || block.address >= segment.address + segment.bytes) continue;
    if (bytes != nullptr) *bytes = segment.bytes;
    return std::bit_cast<void*>(segment.address);
  }
  TORCH_CHECK(false, "getBaseAllocation: the block at ", address, " was freed meanwhile");
}

native::SnapshotInfo Allocator::snapshot(c10::MempoolId_t pool, bool include_traces) {
  const bool every = pool.first == 0 && pool.second == 0;
  native::SnapshotInfo info;
  info.config_metadata = {};
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto index = static_cast<c10::DeviceIndex>(i);
    Pools& pools = devices_[i]->pools;
    for (const Segment& segment : segments_of(index)) {
      const c10::MempoolId_t owner = segment.pool == 0 ? c10::MempoolId_t{0, 0} : pools.id_of(segment.pool);
      if (!every && owner != pool) continue;
      info.segments.push_back(describe(segment, index));
      info.segments.back().owner_private_pool_id = owner;
    }
    if (include_traces) info.device_traces.emplace_back();
  }
  return info;
}

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(listeners_mutex_);
  observers_.push_back(std::move(observer));
}

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
  const std::lock_guard<std::mutex> lock(listeners_mutex_);
  trackers_.push_back(std::move(tracker));
  tracked_ = true;
}

void Allocator::tell_trackers(native::TraceEntry::Action action, c10::DeviceIndex index, const void* address,
                              size_t bytes, cudaStream_t stream) {
  if (C10_LIKELY(!tracked_.load(std::memory_order_relaxed))) return;
  const native::TraceEntry entry(action, index, reinterpret_cast<size_t>(address), bytes, stream, {0, 0},
                                 c10::getApproximateTime());
  const std::lock_guard<std::mutex> lock(listeners_mutex_);
  for (const native::AllocatorTraceTracker& tracker : trackers_) tracker(entry);
}

}  // namespace spillway::libtorch
