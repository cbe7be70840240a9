#include "allocator/accounting/journal.h"

#include <algorithm>

namespace spillway::journal {
namespace {

BlockInfo info_now(HeapState& heap, const Block* block) {
  const Locked guard(heap.lock);
  return heap.info(block);
}

}  // namespace

uint64_t next_order(HeapState& heap) {
  const Locked guard(heap.lock);
  return ++heap.order;
}

void write(HeapState& heap, trace::Record record) {
  trace::Trace* trace = heap.shared.trace.load(std::memory_order_relaxed);
  if (trace == nullptr) return;
  record.order = next_order(heap);
  record.device = heap.device_index;
  trace->write(record);
}

uint64_t number_of(HeapState& heap, const char* text) {
  trace::Trace* trace = heap.shared.trace.load(std::memory_order_relaxed);
  return trace == nullptr ? 0 : trace->intern(text);
}

void pages(HeapState& heap, trace::Kind kind, AddressRange range, CUresult result) {
  trace::Record record;
  record.kind = kind;
  record.address = range.begin;
  record.bytes = range.bytes();
  record.value = result;
  write(heap, record);
}

void page(HeapState& heap, trace::Kind kind, CUmemGenericAllocationHandle handle, uint64_t bytes,
          CUresult result) {
  trace::Record record;
  record.kind = kind;
  record.bytes = bytes;
  record.value = result;
  record.detail = handle;
  write(heap, record);
}

void driver_failure(HeapState& heap, uint64_t bytes, CUresult result, const char* call) {
  trace::Record record;
  record.kind = trace::Kind::kDriverFailure;
  record.bytes = bytes;
  record.value = result;
  record.detail = number_of(heap, call);
  write(heap, record);
}

void memory(HeapState& heap) {
  if (heap.shared.trace.load(std::memory_order_relaxed) == nullptr) return;
  trace::Record record;
  record.kind = trace::Kind::kMemory;
  record.detail = trace::clock_ns();
  {
    const Locked guard(heap.lock);
    record.address = heap.usage.live().requested;
    record.bytes = heap.pages.held();
    record.requested = heap.most_bytes();
    record.stream = heap.pages.peak_held();
    heap.told = {.held = heap.pages.held(), .peak = std::max(heap.told.peak, heap.pages.peak_held())};
  }
  write(heap, record);
}

void tell(HeapState& heap, Change change, const Block* block) {
  Observer* observer = heap.shared.observer.load(std::memory_order_acquire);
  if (observer == nullptr) return;
  const BlockInfo told = info_now(heap, block);
  observer->observe(change, told);
}

void tell_free(HeapState& heap, const Block* block, uint64_t address) {
  bool live = false, at_once = false;
  {
    const Locked guard(heap.lock);
    live = heap.is_live(block, address);
    at_once = (block->shared & (kOtherStreams | kSpilled)) == 0;
  }
  if (!live) return;
  tell(heap, Change::kFreeRequested, block);
  if (at_once) tell(heap, Change::kFreed, block);
}

void tell_pages(HeapState& heap, Change change, const Arena& arena, AddressRange range) {
  Observer* observer = heap.watched() ? heap.shared.observer.load(std::memory_order_acquire) : nullptr;
  if (observer == nullptr) return;
  BlockInfo told;
  told.device = heap.device->id();
  told.address = range.begin;
  told.bytes = range.bytes();
  told.stream = arena.stream();
  told.pool = arena.pool();
  observer->observe(change, told);
}

}  // namespace spillway::journal
