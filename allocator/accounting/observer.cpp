// Telling the observer, and blocks at an address that the caller names.
#include "allocator/accounting/observer.h"

#include <algorithm>

#include "allocator/heap.h"

namespace spillway {

BlockInfo DeviceHeap::info_now(const Block* block) {
  const Locked guard(lock_);
  return info(block);
}

void DeviceHeap::tell(Change change, const Block* block) {
  Observer* observer = allocator_.observer();
  if (observer == nullptr) return;
  const BlockInfo told = info_now(block);
  observer->observe(change, told);
}

// Before a free takes effect: afterwards the bytes may be another thread's.
void DeviceHeap::tell_free(Block* block, uint64_t address) {
  bool live = false, at_once = false;
  {
    const Locked guard(lock_);
    live = block->address == address && block->state == BlockState::kLive;
    at_once = (block->shared & (kOtherStreams | kSpilled)) == 0;
  }
  if (!live) return;
  tell(Change::kFreeRequested, block);
  if (at_once) tell(Change::kFreed, block);
}

void DeviceHeap::tell_pages(Change change, const Arena& arena, AddressRange range) {
  Observer* observer = watched() ? allocator_.observer() : nullptr;
  if (observer == nullptr) return;
  BlockInfo told;
  told.device = device_->id();
  told.address = range.begin;
  told.bytes = range.bytes();
  told.stream = arena.stream();
  told.pool = arena.pool();
  observer->observe(change, told);
}

Status DeviceHeap::allocate_at(const Request& request, uint64_t address) {
  if (forked()) return Status::kUnavailable;
  const uint64_t asked = pool_size(request);
  Block* block = nullptr;
  uint64_t size = 0;
  uint64_t order = 0;
  {
    const Locked guard(lock_);
    for (auto& arena : arenas_) {
      if (arena->pool() != request.pool || arena->stream() != request.stream) continue;
      // Among large blocks a small one takes more, as where a request is served from a large hole.
      size = arena->small() ? asked : std::max(asked, kSmallBytes + kUnitBytes);
      Block* hole = arena->hole_at(address, size);
      if (hole == nullptr || (arena->single_handle && hole->address != address)) continue;
      block = arena->single_handle ? arena->take(hole, size, request.bytes)
                                   : arena->take_at(hole, address, size, request.bytes);
      size = block->size;
      requests_.store(requests_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      order = commit(block);
      break;
    }
  }
  if (block == nullptr) return Status::kNotFound;
  trace_block(trace::Kind::kAllocate, order, address, size, request.bytes, request.stream, request.pool);
  if (watched()) tell(Change::kAllocated, block);
  return Status::kOk;
}

Status Allocator::allocate_at(DeviceId device, const Request& request, uint64_t address) noexcept {
  if (request.bytes == 0 || address % kUnitBytes != 0) return Status::kInvalid;
  DeviceHeap* heap = started(device);
  return heap == nullptr ? Status::kNotFound : heap->allocate_at(request, address);
}

void Allocator::set_observer(Observer* observer) noexcept {
  const Locked guard(observer_mutex_);
  if (observer != nullptr) observer_.store(observer, std::memory_order_release);
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap == nullptr) continue;
    if (observer != nullptr)
      heap->set_slow(kSlowWatched);
    else
      heap->clear_slow(kSlowWatched);
  }
  if (observer == nullptr) observer_.store(nullptr, std::memory_order_release);
}

}  // namespace spillway
