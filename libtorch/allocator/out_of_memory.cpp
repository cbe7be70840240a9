// An allocation failure as an exception: PyTorch's own text first, for people and programs that search for
// it, and what Spillway tried after it.
#include <cuda_runtime_api.h>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "spillway/libtorch/allocator.h"

namespace spillway::libtorch {
namespace {

struct DeviceMemory {
  size_t free = 0;
  size_t total = 0;
};

DeviceMemory ask_device() {
  DeviceMemory memory;
  // Must not hide the failure that is being reported.
  if (cudaMemGetInfo(&memory.free, &memory.total) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return memory;
}

std::string describe(c10::DeviceIndex device, const DeviceMemory& memory, const spillway_failure& failure,
                     size_t allocated) {
  const uint64_t reserved = failure.memory.reserved;
  const uint64_t idle = reserved > allocated ? reserved - allocated : 0;
  return c10::str("CUDA out of memory. Tried to allocate ",
                  c10::CachingAllocator::format_size(failure.requested_bytes), ". GPU ",
                  static_cast<int>(device), " has a total capacity of ",
                  c10::CachingAllocator::format_size(memory.total), " of which ",
                  c10::CachingAllocator::format_size(memory.free), " is free. Of the allocated memory ",
                  c10::CachingAllocator::format_size(allocated), " is allocated by PyTorch, and ",
                  c10::CachingAllocator::format_size(idle),
                  " is reserved by PyTorch but unallocated.\nSpillway: ", failure.text);
}

}  // namespace

PlanChange::PlanChange(c10::SourceLocation where, std::string message, uint64_t incident,
                       spillway_strategy_id move)
    : c10::OutOfMemoryError(where, std::move(message)), incident_(incident), move_(move) {}

PlanChange::~PlanChange() = default;

void Allocator::fail(c10::DeviceIndex index, spillway_status status, const spillway_failure& failure) {
  TORCH_CHECK(status == SPILLWAY_OUT_OF_MEMORY || status == SPILLWAY_UNWIND,
              "Spillway's allocator failed with status ", static_cast<int>(status), ": ",
              core().last_error());
  Statistics& statistics = device(index).statistics;
  statistics.out_of_memory();
  const DeviceMemory memory = ask_device();
  tell_trackers(native::TraceEntry::OOM, index, reinterpret_cast<const void*>(memory.free),
                failure.requested_bytes, nullptr);
  std::vector<native::OutOfMemoryObserver> observers;
  {
    const std::lock_guard<std::mutex> lock(listeners_mutex_);
    observers = observers_;
  }
  for (const auto& observer : observers) observer(index, failure.requested_bytes, memory.total, memory.free);
  const std::string text = describe(index, memory, failure, usage_of(index).all.live.bytes);
  const c10::SourceLocation where{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (status == SPILLWAY_UNWIND) throw PlanChange(where, text, failure.incident, failure.move);
  throw c10::OutOfMemoryError(where, text);
}

}  // namespace spillway::libtorch
