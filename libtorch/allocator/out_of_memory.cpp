// An allocation failure as an exception: PyTorch's own text first, for people and programs that search for
// it, and what Spillway tried after it.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/history/process_memory.h"
#include "libtorch/allocator/pools/segments.h"
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

uint64_t idle_in_private_pools(const std::vector<Segment>& segments) {
  uint64_t bytes = 0;
  for (const Segment& segment : segments)
    for (const spillway_block_info& block : segment.blocks)
      if (block.pool != 0 && block.state == static_cast<uint32_t>(BlockState::kFree)) bytes += block.bytes;
  return bytes;
}

std::string text_of_processes(c10::DeviceIndex device) {
  std::string text;
  for (const ProcessMemory& process : processes_on(device)) {
    const bool own = process.process == static_cast<unsigned>(getpid());
    text += own ? "Including non-PyTorch memory, this process" : "Process " + std::to_string(process.process);
    text += " has " + c10::CachingAllocator::format_size(process.bytes) + " memory in use. ";
  }
  return text;
}

// PyTorch's sentences, with one of Spillway's in place of the advice.
std::string text_of(c10::DeviceIndex device, const DeviceMemory& memory, const spillway_failure& failure,
                    double fraction, uint64_t allocated, uint64_t private_idle) {
  using c10::CachingAllocator::format_size;
  const uint64_t counted = allocated + private_idle;
  const uint64_t reserved = failure.memory.reserved;
  std::string text =
      c10::str("CUDA out of memory. Tried to allocate ", format_size(failure.requested_bytes), ". GPU ",
               static_cast<int>(device), " has a total capacity of ", format_size(memory.total), " of which ",
               format_size(memory.free), " is free. ", text_of_processes(device));
  if (fraction < 1)
    text += format_size(static_cast<uint64_t>(fraction * static_cast<double>(memory.total))) + " allowed; ";
  text += "Of the allocated memory " + format_size(counted) + " is allocated by PyTorch, ";
  if (private_idle > 0)
    text += "with " + format_size(private_idle) + " allocated in private pools (e.g., CUDA Graphs), ";
  return text + "and " + format_size(reserved > counted ? reserved - counted : 0) +
         " is reserved by PyTorch but unallocated.\nSpillway: " + failure.text;
}

}  // namespace

PlanChange::PlanChange(c10::SourceLocation where, std::string message, uint64_t incident,
                       spillway_strategy_id move)
    : c10::OutOfMemoryError(where, std::move(message)), incident_(incident), move_(move) {}

PlanChange::~PlanChange() = default;

// PyTorch's words, and none of Spillway's: such a size is a mistake of the program's.
void Allocator::refuse_exabytes() {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate more than 1EB memory.");
}

// Natively such a request is no failure: it is counted and told by itself, and only where no fraction is set,
// because that bounds it before.
void Allocator::reject(c10::DeviceIndex index, const spillway_failure& failure) {
  device(index).statistics.rejected();
  refused(index, {failure.rounded_bytes, usage_of(index).all.live.bytes, ask_device().total});
  const c10::SourceLocation where{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::OutOfMemoryError(
      where,
      "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
      "per_process_memory_fraction limit. Requested size: " +
          c10::CachingAllocator::format_size(failure.requested_bytes) + "\nSpillway: " + failure.text);
}

void Allocator::fail(const Asker& asker, spillway_status status, const spillway_failure& failure) {
  TORCH_CHECK(status == SPILLWAY_OUT_OF_MEMORY || status == SPILLWAY_UNWIND,
              "Spillway's allocator failed with status ", static_cast<int>(status), ": ",
              core().last_error());
  const c10::DeviceIndex index = asker.device;
  Device& device = this->device(index);
  if (settings_.rejects() && device.fraction >= 1 && status == SPILLWAY_OUT_OF_MEMORY) reject(index, failure);
  device.statistics.out_of_memory();
  const DeviceMemory memory = ask_device();
  listeners_.tell(native::TraceEntry::OOM, index, memory.free, failure.rounded_bytes, asker.stream,
                  device.pools.id_of(asker.pool), Listeners::Call::context());
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(failure.rounded_bytes),
                                   usage_of(index).all.live.bytes, failure.memory.reserved,
                                   c10::Device(c10::DeviceType::CUDA, index));
  std::vector<native::OutOfMemoryObserver> observers;
  {
    const Locked lock(observers_mutex_);
    observers = observers_;
  }
  const double fraction = device.fraction;
  const auto allowed =
      fraction < 1 ? static_cast<size_t>(fraction * static_cast<double>(memory.total)) : memory.total;
  for (const auto& observer : observers) observer(index, failure.rounded_bytes, allowed, memory.free);
  const std::string text = text_of(index, memory, failure, fraction, usage_of(index).all.live.bytes,
                                   idle_in_private_pools(segments_of(index)));
  const c10::SourceLocation where{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (status == SPILLWAY_UNWIND) throw PlanChange(where, text, failure.incident, failure.move);
  throw c10::OutOfMemoryError(where, text);
}

}  // namespace spillway::libtorch
