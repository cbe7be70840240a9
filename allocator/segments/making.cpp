// Allocations for requests.
#include <algorithm>

#include "allocator/accounting/journal.h"
#include "allocator/segments/allocations.h"

namespace spillway {
namespace {

// As PyTorch's own allocator asks the driver, so that neither many allocations are made nor much of one is
// left over.
constexpr uint64_t kForSmall = uint64_t{2} << 20, kForLarge = uint64_t{20} << 20,
                   kOwnAllocation = uint64_t{10} << 20;
constexpr const char* kSourceCall = "the memory pool's own allocator";

uint64_t rounded(uint64_t bytes) {
  return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

uint64_t usual_bytes(const Arena& arena, uint64_t size) {
  if (arena.memory == PoolMemory::kWholeAllocations || size >= kOwnAllocation) return size;
  return arena.small() ? kForSmall : kForLarge;
}

}  // namespace

void Allocations::look_at_source(Miss& miss) {
  if (inside_handler || miss.pages_only || miss.source != nullptr) return;
  {
    const Locked guard(heap_.lock);
    miss.source = heap_.tiling.pools().source_of(miss.request.pool);
  }
  if (miss.source == nullptr) return;
  const uint64_t asked = rounded(std::max(miss.request.bytes, miss.request.padded));
  miss.usual_bytes = miss.source->segment_bytes(asked);
}

uint64_t Allocations::usual(const Miss& miss) {
  const Locked guard(heap_.lock);
  const Arena& arena = arena_of(heap_, miss);
  if (!has_own_source(arena)) return usual_bytes(arena, miss.size);
  const bool may_ask = miss.source != nullptr && heap_.tiling.pools().source_of(arena.pool()) == miss.source;
  return may_ask ? std::max(miss.usual_bytes, miss.size) : 0;
}

Served Allocations::make(Miss& miss) {
  const uint64_t page = heap_.page_bytes;
  const auto whole_pages = [page](uint64_t bytes) { return (bytes + page - 1) / page * page; };
  look_at_source(miss);
  const uint64_t usual = whole_pages(this->usual(miss)), least = whole_pages(miss.size);
  if (usual == 0) return Served::kShort;
  if (usual > least) {
    if (const Served served = make(miss, usual); served != Served::kShort) return served;
    const Locked guard(heap_.lock);
    if (miss.source == nullptr) heap_.pages.take_promise_back(&miss.pages);
  }
  return make(miss, least);
}

Served Allocations::make(Miss& miss, uint64_t bytes) {
  if (!set_aside(miss, bytes)) return Served::kShort;
  if (miss.source == nullptr) return ask_driver(miss, bytes);
  miss.segment_bytes = bytes;
  return Served::kYes;
}

// Budget for the allocation, into the reservation; spare pages make room for what is needed.
bool Allocations::set_aside(Miss& miss, uint64_t bytes) {
  for (const bool last : {bytes > miss.size, true}) {
    uint64_t lacking = 0;
    {
      const Locked guard(heap_.lock);
      const uint64_t missing = bytes - std::min(bytes, miss.pages.promised_bytes);
      if (miss.source != nullptr ? heap_.pages.set_aside_for_source(&miss.pages, bytes)
                                 : heap_.pages.promise(&miss.pages, missing))
        return true;
      lacking = missing - std::min(missing, room_for(heap_, miss));
    }
    if (last || reclaimer_.release_spare(lacking) == 0) break;
  }
  return false;
}

Served Allocations::ask_driver(Miss& miss, uint64_t bytes) {
  uint64_t address = 0;
  const CUresult result = heap_.device->allocate(bytes, &address);
  journal::page(heap_, trace::Kind::kPageCreate, address, bytes, result);
  miss.refused = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return failed(miss, result, "cuMemAlloc");
  const AddressRange range{address, address + bytes};
  if (prepare(miss, range) && add(miss, range)) return Served::kYes;
  heap_.device->free(address);
  return failed(miss, CUDA_ERROR_INVALID_ADDRESS_SPACE, "cuMemAlloc");
}

Served Allocations::ask(Miss& miss) {
  const uint64_t bytes = miss.segment_bytes;
  uint64_t address = 0;
  const uint32_t answer = miss.source->allocate(bytes, &address);
  const bool made = answer == SPILLWAY_SEGMENT_MADE && address != 0;
  const bool refused = answer == SPILLWAY_SEGMENT_REFUSED || (answer == SPILLWAY_SEGMENT_MADE && !made);
  CUresult result = made ? CUDA_SUCCESS : refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
  journal::page(heap_, trace::Kind::kPageCreate, address, bytes, result);
  const AddressRange range{address, address + bytes};
  if (made && prepare(miss, range) && add(miss, range)) return Served::kYes;
  if (made) {
    miss.source->free(address, bytes);
    result = CUDA_ERROR_INVALID_ADDRESS_SPACE;
  }
  return failed(miss, result, kSourceCall);
}

// Only the want of memory may become a shortage; any other error ends the request.
Served Allocations::failed(Miss& miss, CUresult result, const char* call) {
  journal::driver_failure(heap_, miss.size, result, call);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return Served::kShort;
  miss.error = result;
  miss.call = call;
  return Served::kFailed;
}

// Fine slots: these addresses may be anybody's later. Of one that is never cut only the first.
bool Allocations::prepare(const Miss& miss, AddressRange range) {
  if (range.begin % kUnitBytes != 0 || range.end < range.begin) return false;
  bool whole = false;
  {
    const Locked guard(heap_.lock);
    whole = arena_of(heap_, miss).memory == PoolMemory::kWholeAllocations;
  }
  const uint64_t first = range.begin / kPageBytes * kPageBytes;
  return heap_.shared.page_map.prepare(first, whole ? kPageBytes : range.end - first, true);
}

bool Allocations::may_add(const Miss& miss, AddressRange range) {
  if (miss.source == nullptr) return true;
  if (heap_.tiling.pools().source_of(miss.request.pool) != miss.source) return false;
  return std::ranges::none_of(heap_.tiling.arenas(), [&](const auto& arena) {
    return std::ranges::any_of(arena->segments(), [&](const Segment& segment) {
      const bool leaves = !arena->has_pages() && segment.first->state == BlockState::kBusy;  // to the driver
      return !leaves && segment.range.begin < range.end && range.begin < segment.range.end;
    });
  });
}

bool Allocations::add(Miss& miss, AddressRange range) {
  journal::BlockRecord served{.kind = trace::Kind::kAllocate,
                              .address = range.begin,
                              .requested = miss.request.bytes,
                              .stream = miss.request.stream,
                              .value = miss.request.pool};
  Arena* arena = nullptr;
  {
    const Locked guard(heap_.lock);
    if (!may_add(miss, range)) return false;
    arena = &arena_of(heap_, miss);
    Block* block = arena->add_allocation(range, miss.size, miss.request.bytes);
    if (miss.source == nullptr)
      heap_.pages.map_promised(&miss.pages, range.bytes());
    else
      heap_.pages.segment_is_made(&miss.pages, range.bytes());
    served.bytes = block->size;
    served.order = heap_.commit(block);
  }
  miss.address = range.begin;
  miss.served = true;
  journal::tell_pages(heap_, Change::kMapped, *arena, range);
  journal::block(heap_, served);
  return true;
}

}  // namespace spillway
