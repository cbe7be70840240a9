// Telling the trace and the observer what happened on a device.
//
// Thread-safety: any thread, without the heap's lock, which some of them take. Errors: none; where nobody
// listens, nothing is done.
#pragma once
#include <cstdint>

#include "allocator/heap_state.h"
#include "trace/record.h"

namespace spillway::journal {

// A record on a new place in the order.
void write(HeapState& heap, trace::Record record);
uint64_t next_order(HeapState& heap);
// A number for a text in the trace.
uint64_t number_of(HeapState& heap, const char* text);

// A request's or a free's record, on the place in the order that it has already.
struct BlockRecord {
  trace::Kind kind{};
  uint64_t order = 0, address = 0, bytes = 0, requested = 0;
  StreamId stream{};
  uint64_t value = 0, detail = 0;
};
inline void block(HeapState& heap, const BlockRecord& told) {
  trace::Trace* trace = heap.shared.trace.load(std::memory_order_relaxed);
  if (trace == nullptr) return;
  trace::Record record;
  record.order = told.order;
  record.address = told.address;
  record.bytes = told.bytes;
  record.requested = told.requested;
  record.stream = static_cast<uint64_t>(told.stream);
  record.value = static_cast<uint32_t>(told.value);
  record.detail = told.detail;
  record.kind = told.kind;
  record.device = heap.device_index;
  trace->write(record);
}

// Pages at the driver: created, released, mapped, unmapped.
void pages(HeapState& heap, trace::Kind kind, AddressRange range, CUresult result);
void page(HeapState& heap, trace::Kind kind, CUmemGenericAllocationHandle handle, uint64_t bytes,
          CUresult result);
void driver_failure(HeapState& heap, uint64_t bytes, CUresult result, const char* call);
// Live, held and peak bytes.
void memory(HeapState& heap);

void tell(HeapState& heap, Change change, const Block* block);
// Before a free takes effect: afterwards the bytes may be another thread's.
void tell_free(HeapState& heap, const Block* block, uint64_t address);
void tell_pages(HeapState& heap, Change change, const Arena& arena, AddressRange range);

}  // namespace spillway::journal
