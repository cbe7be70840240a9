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
constexpr const char* kDriverCall = "cuMemAlloc";
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
  if (result != CUDA_SUCCESS) return failed(miss, result, kDriverCall);
  if (const char* reason = put_to_use(miss, {address, address + bytes})) {
    const CUresult freed = heap_.device->free(address);
    journal::page(heap_, trace::Kind::kPageRelease, address, bytes, freed);
    return failed(miss, CUDA_ERROR_INVALID_ADDRESS_SPACE, reason);
  }
  return Served::kYes;
}

// Where blocks begin behind the allocation, less of it is left for them.
Served Allocations::ask(Miss& miss) {
  const Served served = ask_source(miss);
  if (!miss.needs_more) return served;
  miss.needs_more = false;
  const uint64_t more = miss.segment_bytes + kUnitBytes;
  if (!set_aside(miss, more)) return Served::kShort;
  miss.segment_bytes = more;
  return ask_source(miss);
}

Served Allocations::ask_source(Miss& miss) {
  const uint64_t bytes = miss.segment_bytes;
  uint64_t address = 0;
  const uint32_t answer = miss.source->allocate(bytes, &address);
  const bool made = answer == SPILLWAY_SEGMENT_MADE && address != 0;
  const bool refused = answer == SPILLWAY_SEGMENT_REFUSED || (answer == SPILLWAY_SEGMENT_MADE && !made);
  const CUresult result = made ? CUDA_SUCCESS : refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
  journal::page(heap_, trace::Kind::kPageCreate, address, bytes, result);
  if (!made) return failed(miss, result, kSourceCall);
  const AddressRange given{address, address + bytes};
  miss.needs_more = given.end > address && units_in(given).bytes() < miss.size;
  const char* reason = miss.needs_more ? "" : put_to_use(miss, given);
  if (reason == nullptr) return Served::kYes;
  journal::page(heap_, trace::Kind::kPageRelease, address, bytes, CUDA_SUCCESS);
  miss.source->free(address, bytes);
  return miss.needs_more ? Served::kShort : failed(miss, CUDA_ERROR_INVALID_ADDRESS_SPACE, reason);
}

const char* Allocations::put_to_use(Miss& miss, AddressRange given) {
  const bool of_driver = miss.source == nullptr;
  if (given.end < given.begin || !prepare(miss, units_in(given)))
    return of_driver ? "cuMemAlloc, which gave an address from 2^47 on,"
                     : "the memory pool's own allocator, which gave an address from 2^47 on,";
  if (add(miss, given)) return nullptr;
  return "the memory pool's own allocator, which gave memory that is in use,";
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
  bool whole = false;
  {
    const Locked guard(heap_.lock);
    whole = arena_of(heap_, miss).memory == PoolMemory::kWholeAllocations;
  }
  const uint64_t first = range.begin / kPageBytes * kPageBytes;
  return heap_.shared.page_map.prepare(first, whole ? kPageBytes : range.end - first, true);
}

bool Allocations::may_add(const Miss& miss, AddressRange given) {
  if (miss.source == nullptr) return true;
  if (heap_.tiling.pools().source_of(miss.request.pool) != miss.source) return false;
  return std::ranges::none_of(heap_.tiling.arenas(), [&](const auto& arena) {
    return std::ranges::any_of(arena->segments(), [&](const Segment& segment) {
      const bool leaves = !arena->has_pages() && segment.first->state == BlockState::kBusy;  // to the driver
      return !leaves && segment.range.begin < given.end && given.begin < segment.range.end;
    });
  });
}

bool Allocations::add(Miss& miss, AddressRange given) {
  const AddressRange range = units_in(given);
  journal::BlockRecord served{.kind = trace::Kind::kAllocate,
                              .address = range.begin,
                              .requested = miss.request.bytes,
                              .stream = miss.request.stream,
                              .value = miss.request.pool};
  Arena* arena = nullptr;
  {
    const Locked guard(heap_.lock);
    if (!may_add(miss, given)) return false;
    arena = &arena_of(heap_, miss);
    Block* block = arena->add_allocation(given, miss.size, miss.request.bytes);
    if (miss.source == nullptr)
      heap_.pages.map_promised(&miss.pages, given.bytes());
    else
      heap_.pages.segment_is_made(&miss.pages, given.bytes());
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
