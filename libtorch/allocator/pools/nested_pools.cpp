// The allocator's side of memory pools that have an allocator of their own, and what it holds with theirs.
#include <cstring>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"

namespace spillway::libtorch {

NestedPool::Owner Allocator::owner_of(c10::DeviceIndex index, c10::MempoolId_t pool) {
  return {.tell =
              [this, pool](uint32_t change, const spillway_block_info& block) {
                if (listeners_.wanted()) listeners_.saw(change, block, pool);
              },
          .charge = [this, index](uint64_t bytes) { return charge(index, bytes); },
          .discharge = [this, index](uint64_t bytes) { discharge(index, bytes); }};
}

// What the fraction leaves to the core beside these pools; whether the core holds no more. A limit that the
// user lowered since the last time stays.
bool Allocator::limit_core(c10::DeviceIndex index, Device& device) {
  if (const uint64_t now = memory_of(index).limit; now < device.core_limit) device.user_limit = now;
  const uint64_t together = std::min(device.allowed, device.user_limit);
  const uint64_t left = together - std::min(together, device.nested_bytes);
  device.core_limit = std::max<uint64_t>(left, 1);  // 0 would mean no limit
  const spillway_status status = core().limit(index, device.core_limit);
  TORCH_CHECK(status == SPILLWAY_OK, "a memory fraction cannot be set: ", core().last_error());
  return device.nested_bytes <= together && memory_of(index).reserved <= left;
}

bool Allocator::charge(c10::DeviceIndex index, uint64_t bytes) {
  Device& device = this->device(index);
  const Locked lock(device.limit_mutex);
  device.nested_bytes += bytes;
  if (device.allowed == 0 || limit_core(index, device)) return true;
  device.nested_bytes -= bytes;
  static_cast<void>(limit_core(index, device));
  return false;
}

void Allocator::discharge(c10::DeviceIndex index, uint64_t bytes) {
  Device& device = this->device(index);
  const Locked lock(device.limit_mutex);
  device.nested_bytes -= bytes;
  if (device.allowed != 0) static_cast<void>(limit_core(index, device));
}

void* Allocator::serve_nested(NestedPool& pool, const Asker& asker, size_t bytes) {
  if (void* address = pool.allocate(bytes, asker.stream)) return address;
  spillway_failure failure{};
  failure.size = sizeof failure;
  failure.requested_bytes = bytes;
  failure.rounded_bytes = rounded(bytes);
  failure.memory = memory_of(asker.device);
  std::strncpy(failure.text, "the memory pool's own allocator has no more memory", sizeof failure.text - 1);
  fail(asker, SPILLWAY_OUT_OF_MEMORY, failure);
}

void* Allocator::borrow(Pools& pools, size_t bytes, cudaStream_t stream) {
  for (const Pools::Nested& nested : pools.all_nested())
    if (void* address = nested->borrow(bytes, stream)) return address;
  return nullptr;
}

void Allocator::give_back_nested(c10::DeviceIndex index) {
  for (const Pools::Nested& nested : device(index).pools.all_nested()) nested->empty_cache();
}

bool Allocator::find_nested(const void* address, spillway_block_info* block) {
  for (auto& device : devices_)
    for (const Pools::Nested& nested : device->pools.all_nested())
      if (nested->find(address, block)) return true;
  return false;
}

bool Allocator::free_nested(void* address, spillway_block_info* block) {
  for (auto& device : devices_)
    for (const Pools::Nested& nested : device->pools.all_nested())
      if (nested->free(address, block)) return true;
  return false;
}

std::vector<Segment> Allocator::segments(c10::DeviceIndex index) {
  Pools& pools = device(index).pools;
  std::vector<Segment> all = segments_of(index, [&](uint64_t pool) { return pools.is_single(pool); });
  for (const Pools::Nested& nested : device(index).pools.all_nested()) nested->add_segments(&all);
  return all;
}

// Peaks add up: that of both together is not known, and is no higher.
spillway_usage Allocator::usage(c10::DeviceIndex index) {
  spillway_usage sum = usage_of(index);
  for (const Pools::Nested& nested : device(index).pools.all_nested()) nested->add_usage(&sum);
  return sum;
}

}  // namespace spillway::libtorch
