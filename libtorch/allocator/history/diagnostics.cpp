// What PyTorch asks the allocator to tell: statistics, snapshots, observers.

#include <algorithm>
#include <bit>
#include <tuple>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/pools/segments.h"
#include "libtorch/allocator_config.h"

namespace spillway::libtorch {
namespace {

bool is(const spillway_block_info& block, BlockState state) {
  return block.state == static_cast<uint32_t>(state);
}

// Since 2.9.
template <class Cuda, class Info>
void add_capture_reuse(Info& info) {
  if constexpr (requires { info.graph_capture_record_stream_reuse; })
    info.graph_capture_record_stream_reuse = Cuda::graph_capture_record_stream_reuse();
}

// Since 2.13.
template <class Config, class Info>
void add_pinned_limits(Info& info) {
  if constexpr (requires { info.max_cached_size; }) {
    info.max_round_threshold = Config::pinned_max_round_threshold();
    info.max_cached_size = Config::pinned_max_cached_size();
  }
}

native::AllocatorConfigInfo settings() {
  native::AllocatorConfigInfo info{};
  info.garbage_collection_threshold = Config::garbage_collection_threshold();
  info.max_split_size = Config::max_split_size();
  info.pinned_num_register_threads = CudaConfig::pinned_num_register_threads();
  info.expandable_segments = CudaConfig::expandable_segments();
  info.release_lock_on_malloc = CudaConfig::release_lock_on_cudamalloc();
  info.pinned_use_host_register = CudaConfig::pinned_use_cuda_host_register();
  info.last_allocator_settings = Config::last_allocator_settings();
  info.roundup_power2_divisions = Config::roundup_power2_divisions();
  add_capture_reuse<CudaConfig>(info);
  add_pinned_limits<Config>(info);
  return info;
}

}  // namespace

native::SegmentInfo Allocator::describe(const Segment& segment, c10::DeviceIndex device) {
  History& history = listeners_.history();
  native::SegmentInfo info;
  info.device = device;
  info.address = segment.address;
  info.total_size = segment.bytes;
  info.stream = std::bit_cast<decltype(info.stream)>(segment.blocks.front().stream);
  info.is_large = !segment.small();
  info.is_expandable = segment.expandable;
  info.context_when_allocated = history.pages_context(segment.address);
  for (const spillway_block_info& block : segment.blocks) {
    native::BlockInfo part;
    part.size = block.bytes;
    part.allocated = is(block, BlockState::kLive);
    part.active = !is(block, BlockState::kFree);
    if (part.active) {
      part.requested_size = block.requested_bytes;
      part.context_when_allocated = history.block_context(block.address);
      info.requested_size += part.requested_size;
      info.active_size += part.size;
    }
    if (part.allocated) info.allocated_size += part.size;
    info.blocks.push_back(std::move(part));
  }
  return info;
}

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(c10::DeviceIndex index) {
  const std::vector<Segment> all = segments_of(index);
  Statistics::Layout layout = layout_of(all, index);
  for (const Segment& segment : all)
    if (segment.pool != 0) layout.pools[device(index).pools.id_of(segment.pool)] += segment.bytes;
  return device(index).statistics.read(usage_of(index), layout);
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

native::SnapshotInfo Allocator::snapshot(c10::cuda::MempoolId_t pool, bool include_traces) {
  const bool every = pool.first == 0 && pool.second == 0;
  native::SnapshotInfo info;
  info.config_metadata = settings();
  if (include_traces) info.external_annotations = listeners_.history().annotations();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto index = static_cast<c10::DeviceIndex>(i);
    // The entry of this snapshot is the next one's to show.
    if (include_traces) info.device_traces.push_back(listeners_.history().trace(index));
    size_t active = 0;
    for (const Segment& segment : segments_of(index)) {
      const c10::cuda::MempoolId_t owner = devices_[i]->pools.id_of(segment.pool);
      if (!every && owner != pool) continue;
      info.segments.push_back(describe(segment, index));
      info.segments.back().owner_private_pool_id = owner;
      active += info.segments.back().active_size;
    }
    listeners_.tell(native::TraceEntry::SNAPSHOT, index, 0, active, nullptr, pool, nullptr);
  }
  std::sort(info.segments.begin(), info.segments.end(), [](const auto& a, const auto& b) {
    return std::tie(a.device, a.address) < std::tie(b.device, b.address);
  });
  return info;
}

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
  const Locked lock(observers_mutex_);
  observers_.push_back(std::move(observer));
}

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
  listeners_.attach(std::move(tracker));
}

void Allocator::recordHistory(bool enabled, native::CreateContextFn recorder, size_t most_entries,
                              native::RecordContext when, bool clear,
                              const std::vector<std::string>& skipped) {
  listeners_.record({enabled, recorder, most_entries, when, clear, skipped});
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) {
  if (isHistoryEnabled()) listeners_.history().annotate(current_device(), metadata);
}

Context Allocator::context_of(const void* block) {
  return listeners_.history().block_context(reinterpret_cast<uint64_t>(block));
}

void Allocator::annotate_block(const void* address, const std::string& metadata) {
  spillway_block_info block{};
  const bool live = core().table->find_block(address, &block) == SPILLWAY_OK;
  if (!live || block.address != reinterpret_cast<uint64_t>(address)) return;  // as natively: no entry
  const auto index = static_cast<c10::DeviceIndex>(block.device);
  listeners_.annotate(index, block, device(index).pools.id_of(block.pool), metadata);
}

// Whether or not there is a history: it may begin or end inside a region.
void Allocator::pushCompileContext(std::string& context) {
  History::push_compile_context(context);
}

void Allocator::popCompileContext() {
  History::pop_compile_context();
}

void Allocator::hear(uint32_t change, const spillway_block_info& block) noexcept {
  try {
    const c10::cuda::MempoolId_t pool =
        device(static_cast<c10::DeviceIndex>(block.device)).pools.id_of(block.pool);
    listeners_.saw(change, block, pool);
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("Spillway's allocator: an entry of the history is lost: ", error.what());
  }
}

}  // namespace spillway::libtorch
