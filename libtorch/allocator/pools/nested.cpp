#include "libtorch/allocator/pools/nested.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <bit>
#include <iterator>

namespace spillway::libtorch {
namespace {

uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

uint64_t block_size(uint64_t bytes) {
  return std::max<uint64_t>(rounded(bytes), c10::CachingAllocator::kMinBlockSize);
}

// PyTorch's sizes, because the other allocator sees them.
uint64_t segment_size(uint64_t bytes) {
  using namespace c10::CachingAllocator;
  if (bytes <= kSmallSize) return kSmallBuffer;
  if (bytes < kMinLargeAlloc) return AcceleratorAllocatorConfig::large_segment_size();
  return (bytes + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  static_cast<void>(cudaGetLastError());
  return true;
}

spillway_sums sums_of(uint64_t bytes, uint64_t requested) {
  return {1, bytes, requested};
}

void add(spillway_sums& to, const spillway_sums& sums) {
  to.count += sums.count;
  to.bytes += sums.bytes;
  to.requested_bytes += sums.requested_bytes;
}

void subtract(spillway_sums& from, const spillway_sums& sums) {
  from.count -= sums.count;
  from.bytes -= sums.bytes;
  from.requested_bytes -= sums.requested_bytes;
}

void raise(spillway_sums& peak, const spillway_sums& now) {
  peak.count = std::max(peak.count, now.count);
  peak.bytes = std::max(peak.bytes, now.bytes);
  peak.requested_bytes = std::max(peak.requested_bytes, now.requested_bytes);
}

void add(spillway_usage_levels& to, const spillway_usage_levels& levels) {
  add(to.live, levels.live);
  add(to.peak_live, levels.peak_live);
  add(to.allocated, levels.allocated);
  add(to.freed, levels.freed);
  add(to.active, levels.active);
  add(to.peak_active, levels.peak_active);
  add(to.deactivated, levels.deactivated);
}

}  // namespace

template <class Operation>
void NestedPool::count(const Part& part, Operation operation) {
  const spillway_sums sums = sums_of(part.bytes, part.requested);
  const bool small = part.bytes <= c10::CachingAllocator::kSmallSize;
  for (spillway_usage_levels* levels : {&usage_.all, small ? &usage_.small : &usage_.large}) {
    operation(*levels, sums);
    raise(levels->peak_live, levels->live);
    raise(levels->peak_active, levels->active);
  }
}

NestedPool::Parts::iterator NestedPool::best(uint64_t bytes, cudaStream_t stream) {
  auto found = parts_.end();
  for (auto it = parts_.begin(); it != parts_.end(); ++it) {
    const Part& part = it->second;
    if (part.state != BlockState::kFree || part.stream != stream || part.bytes < bytes) continue;
    if (found == parts_.end() || part.bytes < found->second.bytes) found = it;
  }
  return found;
}

void* NestedPool::ask(uint64_t bytes) {
  if (!owner_.charge(bytes)) return nullptr;
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
  void* address = nullptr;
  try {
    address = source_->raw_alloc(bytes);
  } catch (...) {
    owner_.discharge(bytes);
    throw;
  }
  if (address == nullptr) owner_.discharge(bytes);
  return address;
}

NestedPool::Parts::iterator NestedPool::grow(uint64_t bytes, cudaStream_t stream) {
  const uint64_t size = segment_size(bytes);
  void* address = ask(size);
  if (address == nullptr) return parts_.end();
  segments_[address_of(address)] = size;
  reserved_ += size;
  Part part;
  part.bytes = size;
  part.segment = address_of(address);
  part.stream = stream;
  const auto placed = parts_.emplace(address_of(address), std::move(part)).first;
  owner_.tell(SPILLWAY_CHANGE_MAPPED, describe(*placed));
  return placed;
}

void* NestedPool::allocate(uint64_t bytes, cudaStream_t stream) {
  const Locked lock(mutex_);
  if (!pending_.empty() && !capturing(stream)) poll();
  const uint64_t size = block_size(bytes);
  auto found = best(size, stream);
  if (found == parts_.end()) found = grow(size, stream);
  if (found == parts_.end()) return nullptr;
  return take(found, bytes, size);
}

void* NestedPool::borrow(uint64_t bytes, cudaStream_t stream) {
  const Locked lock(mutex_);
  const uint64_t size = block_size(bytes);
  const auto found = lends_ ? best(size, stream) : parts_.end();
  return found == parts_.end() ? nullptr : take(found, bytes, size);
}

void* NestedPool::take(Parts::iterator found, uint64_t bytes, uint64_t size) {
  if (!whole_) split(found, size);
  Part& part = found->second;
  part.state = BlockState::kLive;
  part.requested = bytes;
  count(part, [](spillway_usage_levels& levels, const spillway_sums& sums) {
    add(levels.live, sums);
    add(levels.active, sums);
    add(levels.allocated, sums);
  });
  owner_.tell(SPILLWAY_CHANGE_ALLOCATED, describe(*found));
  return std::bit_cast<void*>(found->first);
}

void NestedPool::split(Parts::iterator part, uint64_t bytes) {
  if (part->second.bytes == bytes) return;
  Part rest;
  rest.bytes = part->second.bytes - bytes;
  rest.segment = part->second.segment;
  rest.stream = part->second.stream;
  part->second.bytes = bytes;
  parts_.emplace(part->first + bytes, std::move(rest));
}

NestedPool::Parts::iterator NestedPool::live(const void* address) {
  const auto found = parts_.find(address_of(address));
  return found != parts_.end() && found->second.state == BlockState::kLive ? found : parts_.end();
}

bool NestedPool::free(void* address, spillway_block_info* freed) {
  const Locked lock(mutex_);
  const auto found = live(address);
  if (found == parts_.end()) return false;
  *freed = describe(*found);
  Part& part = found->second;
  count(part, [](spillway_usage_levels& levels, const spillway_sums& sums) {
    subtract(levels.live, sums);
    add(levels.freed, sums);
  });
  owner_.tell(SPILLWAY_CHANGE_FREE_REQUESTED, *freed);
  part.state = BlockState::kPending;
  if (part.uses.empty()) {
    put_free(found);
  } else {
    mark_uses(part);
    pending_.push_back(found->first);
  }
  return true;
}

void NestedPool::put_free(Parts::iterator part) {
  owner_.tell(SPILLWAY_CHANGE_FREED, describe(*part));
  count(part->second, [](spillway_usage_levels& levels, const spillway_sums& sums) {
    subtract(levels.active, sums);
    add(levels.deactivated, sums);
  });
  part->second.state = BlockState::kFree;
  part->second.requested = 0;
  const auto joins = [](const Part& a, const Part& b) {
    return a.state == BlockState::kFree && b.state == BlockState::kFree && a.segment == b.segment;
  };
  if (const auto next = std::next(part); next != parts_.end() && joins(part->second, next->second)) {
    part->second.bytes += next->second.bytes;
    parts_.erase(next);
  }
  if (part == parts_.begin()) return;
  if (const auto before = std::prev(part); joins(before->second, part->second)) {
    before->second.bytes += part->second.bytes;
    parts_.erase(part);
  }
}

bool NestedPool::record_stream(void* address, cudaStream_t stream) {
  const Locked lock(mutex_);
  const auto found = live(address);
  if (found == parts_.end()) return false;
  std::vector<cudaStream_t>& uses = found->second.uses;
  if (stream != found->second.stream && std::find(uses.begin(), uses.end(), stream) == uses.end())
    uses.push_back(stream);
  return true;
}

// An event behind what each stream has queued until now; none on a stream that is being captured, where it
// would become part of the graph.
void NestedPool::mark_uses(Part& part) {
  std::erase_if(part.uses, [&](cudaStream_t stream) {
    if (capturing(stream)) return false;
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    part.events.push_back(event);
    C10_CUDA_CHECK(cudaEventRecord(event, stream));
    return true;
  });
}

void NestedPool::poll() {
  std::erase_if(pending_, [&](uint64_t address) SPILLWAY_REQUIRES(mutex_) {
    const auto found = parts_.find(address);
    Part& part = found->second;
    mark_uses(part);
    std::erase_if(part.events, [](cudaEvent_t event) {
      const cudaError_t state = cudaEventQuery(event);
      if (state == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());
        return false;
      }
      C10_CUDA_CHECK(state);
      C10_CUDA_CHECK(cudaEventDestroy(event));
      return true;
    });
    if (!part.uses.empty() || !part.events.empty()) return false;
    put_free(found);
    return true;
  });
}

bool NestedPool::find(const void* address, spillway_block_info* block) {
  const Locked lock(mutex_);
  auto after = parts_.upper_bound(address_of(address));
  if (after == parts_.begin()) return false;
  const auto part = std::prev(after);
  if (address_of(address) >= part->first + part->second.bytes) return false;
  *block = describe(*part);
  return part->second.state != BlockState::kFree;
}

spillway_block_info NestedPool::describe(const Parts::value_type& part) const {
  const auto& [address, it] = part;
  return {.address = address,
          .bytes = it.bytes,
          .requested_bytes = it.requested,
          .stream = address_of(it.stream),
          .pool = number_,
          .state = static_cast<uint32_t>(it.state),
          .device = device_};
}

void NestedPool::set_lends(bool lends) {
  const Locked lock(mutex_);
  lends_ = lends;
}

void NestedPool::set_whole() {
  const Locked lock(mutex_);
  whole_ = true;
}

void NestedPool::release() {
  const Locked lock(mutex_);
  released_ = true;
}

bool NestedPool::gone() {
  const Locked lock(mutex_);
  return released_ && parts_.empty();
}

uint64_t NestedPool::empty_cache() {
  const Locked lock(mutex_);
  if (!released_) return 0;
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
  poll();
  uint64_t given_back = 0;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto [address, bytes] = *segment;
    const auto part = parts_.find(address);
    if (part->second.state != BlockState::kFree || part->second.bytes != bytes) {
      ++segment;
      continue;
    }
    // As natively before memory goes back: whatever may still use it is done.
    if (cudaStreamSynchronize(part->second.stream) != cudaSuccess) static_cast<void>(cudaGetLastError());
    owner_.tell(SPILLWAY_CHANGE_UNMAPPED, describe(*part));
    parts_.erase(part);
    segment = segments_.erase(segment);
    reserved_ -= bytes;
    given_back += bytes;
    source_->raw_delete(std::bit_cast<void*>(address));
    owner_.discharge(bytes);
  }
  return given_back;
}

void NestedPool::add_segments(std::vector<Segment>* segments) {
  const Locked lock(mutex_);
  for (const auto& [address, bytes] : segments_) {
    Segment segment{address, bytes, number_, false, {}};
    for (auto it = parts_.find(address); it != parts_.end() && it->second.segment == address; ++it)
      segment.blocks.push_back(describe(*it));
    segments->push_back(std::move(segment));
  }
}

void NestedPool::add_usage(spillway_usage* usage) {
  const Locked lock(mutex_);
  add(usage->all, usage_.all);
  add(usage->small, usage_.small);
  add(usage->large, usage_.large);
}

uint64_t NestedPool::reserved() {
  const Locked lock(mutex_);
  return reserved_;
}

void NestedPool::reset_peaks() {
  const Locked lock(mutex_);
  for (spillway_usage_levels* levels : {&usage_.all, &usage_.small, &usage_.large}) {
    levels->peak_live = levels->live;
    levels->peak_active = levels->active;
  }
}

void NestedPool::reset_totals() {
  const Locked lock(mutex_);
  for (spillway_usage_levels* levels : {&usage_.all, &usage_.small, &usage_.large})
    levels->allocated = levels->freed = levels->deactivated = {};
}

}  // namespace spillway::libtorch
