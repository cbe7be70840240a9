#include "allocator/streams/program_streams.h"

#include <algorithm>

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

bool anything_captures(Allocator& allocator) noexcept {
  return allocator.context().streams.captures_something();
}

void ask_for_marks(Allocator& allocator, void (*begin)()) noexcept {
  allocator.context().marks_wanted.store(begin);
}

void mark_progress(Allocator& allocator, StreamId stream) noexcept {
  CUcontext current = nullptr;
  if (allocator.table().cuCtxGetCurrent(&current) != CUDA_SUCCESS) return;
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}) &&
        allocator.heap(DeviceId{i}, nullptr, nullptr)->mark_progress(current, stream))
      return;
}

uint64_t passed_marks(Allocator& allocator) noexcept {
  uint64_t passed = 0;
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i})) passed += allocator.heap(DeviceId{i}, nullptr, nullptr)->passed_marks();
  return passed;
}

double slowest_marks_us(Allocator& allocator) noexcept {
  double us = 0;
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}))
      us = std::max(us, allocator.heap(DeviceId{i}, nullptr, nullptr)->slowest_marks_us());
  return us;
}

}  // namespace spillway
