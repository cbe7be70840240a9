#include "allocator/segments/sources.h"

#include "allocator/heap.h"

namespace spillway {

Status set_source(Allocator& allocator, DeviceId device, uint64_t pool,
                  const spillway_segment_source& functions) noexcept {
  const auto source = std::make_shared<const SegmentSource>(functions);
  if (pool == 0 || pool == kEveryPool) return Status::kInvalid;
  Status status = Status::kOk;
  DeviceHeap* heap = allocator.heap(device, &status, nullptr);
  return heap == nullptr ? status : heap->set_source(pool, source);
}

uint64_t empty_sources(Allocator& allocator, DeviceId device, uint64_t pool) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->empty_sources(pool) : 0;
}

}  // namespace spillway
