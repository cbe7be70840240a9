// Requests that an allocation of the driver's own serves; see kPoolSingleHandle.
#include <algorithm>

#include "allocator/accounting/journal.h"
#include "allocator/request/growth.h"

namespace spillway {

// Budget for the allocation, into the reservation; spare pages make room for it.
bool Growth::set_aside(Miss& miss) {
  for (const bool last : {false, true}) {
    uint64_t lacking = 0;
    {
      const Locked guard(heap_.lock);
      const uint64_t missing = miss.size - std::min(miss.size, miss.pages.promised_bytes);
      if (heap_.pages.promise(&miss.pages, missing)) return true;
      lacking = missing - std::min(missing, heap_.pages.quota().room());
    }
    if (last || reclaimer_.release_spare(lacking) == 0) break;
  }
  return false;
}

Served Growth::make_single(Miss& miss) {
  if (!set_aside(miss)) return Served::kShort;
  uint64_t address = 0;
  const CUresult result = heap_.device->allocate(miss.size, &address);
  journal::page(heap_, trace::Kind::kPageCreate, address, miss.size, result);
  miss.refused = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return refused(miss, result, "cuMemAlloc");
  const AddressRange range{address, address + miss.size};
  // Only the first page needs slots, and fine ones: these addresses may be anybody's later.
  if (!heap_.shared.page_map.prepare(address / kPageBytes * kPageBytes, kPageBytes, true)) {
    heap_.device->free(address);
    return refused(miss, CUDA_ERROR_INVALID_ADDRESS_SPACE, "cuMemAlloc");
  }
  journal::BlockRecord served{.kind = trace::Kind::kAllocate,
                              .address = address,
                              .bytes = miss.size,
                              .requested = miss.request.bytes,
                              .stream = miss.request.stream,
                              .value = miss.request.pool};
  Arena* arena = nullptr;
  {
    const Locked guard(heap_.lock);
    arena = &arena_of(heap_, miss);
    Block* block = arena->add_single(range, miss.request.bytes);
    heap_.pages.map_promised(&miss.pages, miss.size);
    served.order = heap_.commit(block);
  }
  miss.address = address;
  miss.served = true;
  journal::tell_pages(heap_, Change::kMapped, *arena, range);
  journal::block(heap_, served);
  return Served::kYes;
}

}  // namespace spillway
