// The allocator's side of memory pools that have an allocator of their own, and what it holds with theirs.
#include <cstring>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"

namespace spillway::libtorch {

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
  std::vector<Segment> all = segments_of(index);
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
