// Requests that an allocation of the driver's own serves; see PoolMemory.
#include <algorithm>

#include "allocator/accounting/journal.h"
#include "allocator/request/growth.h"

namespace spillway {
namespace {

// As PyTorch's own allocator asks the driver, so that neither many allocations are made nor much of one is
// left over.
constexpr uint64_t kForSmall = uint64_t{2} << 20, kForLarge = uint64_t{20} << 20,
                   kOwnAllocation = uint64_t{10} << 20;

uint64_t usual_bytes(const Arena& arena, uint64_t size) {
  if (arena.memory == PoolMemory::kWholeAllocations || size >= kOwnAllocation) return size;
  return arena.small() ? kForSmall : kForLarge;
}

}  // namespace

// Budget for the allocation, into the reservation; spare pages make room for what is needed.
bool Growth::set_aside(Miss& miss, uint64_t bytes) {
  for (const bool last : {bytes > miss.size, true}) {
    uint64_t lacking = 0;
    {
      const Locked guard(heap_.lock);
      const uint64_t missing = bytes - std::min(bytes, miss.pages.promised_bytes);
      if (heap_.pages.promise(&miss.pages, missing)) return true;
      lacking = missing - std::min(missing, heap_.pages.quota().room());
    }
    if (last || reclaimer_.release_spare(lacking) == 0) break;
  }
  return false;
}

// As large as is usual, or where that is too much as large as the request.
Served Growth::make_allocation(Miss& miss) {
  const uint64_t page = heap_.page_bytes;
  const auto whole_pages = [page](uint64_t bytes) { return (bytes + page - 1) / page * page; };
  uint64_t usual = 0;
  {
    const Locked guard(heap_.lock);
    usual = whole_pages(usual_bytes(arena_of(heap_, miss), miss.size));
  }
  const uint64_t least = whole_pages(miss.size);
  if (usual > least) {
    if (const Served served = allocate(miss, usual); served != Served::kShort) return served;
    const Locked guard(heap_.lock);
    heap_.pages.take_promise_back(&miss.pages);
  }
  return allocate(miss, least);
}

Served Growth::allocate(Miss& miss, uint64_t bytes) {
  if (!set_aside(miss, bytes)) return Served::kShort;
  uint64_t address = 0;
  const CUresult result = heap_.device->allocate(bytes, &address);
  journal::page(heap_, trace::Kind::kPageCreate, address, bytes, result);
  miss.refused = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return refused(miss, result, "cuMemAlloc");
  const AddressRange range{address, address + bytes};
  // Fine slots: these addresses may be anybody's later. Of a block that is the allocation only the first.
  const uint64_t first = address / kPageBytes * kPageBytes;
  const uint64_t used = miss.size == bytes ? kPageBytes : range.end - first;
  if (!heap_.shared.page_map.prepare(first, used, true)) {
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
    Block* block = arena->add_allocation(range, miss.size, miss.request.bytes);
    heap_.pages.map_promised(&miss.pages, bytes);
    served.order = heap_.commit(block);
  }
  miss.address = address;
  miss.served = true;
  journal::tell_pages(heap_, Change::kMapped, *arena, range);
  journal::block(heap_, served);
  return Served::kYes;
}

}  // namespace spillway
