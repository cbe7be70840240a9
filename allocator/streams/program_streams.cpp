#include "allocator/streams/program_streams.h"

#include "allocator/context.h"
#include "allocator/heap.h"

namespace spillway {

void follow_streams(Allocator& allocator, uint32_t (*captures)(), int (*lasts)(uint64_t stream)) noexcept {
  allocator.context().streams.captures.store(captures);
  allocator.context().streams.lasts.store(lasts);
}

void stream_ends(Allocator& allocator, StreamId stream) noexcept {
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i})) allocator.heap(DeviceId{i}, nullptr, nullptr)->stream_ends(stream);
}

}  // namespace spillway
