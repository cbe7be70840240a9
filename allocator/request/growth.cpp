#include "allocator/request/growth.h"

#include <algorithm>

#include "allocator/accounting/journal.h"

namespace spillway {
namespace {

std::span<const driver::Page> first_bytes(std::span<const driver::Page> pages, uint64_t bytes) {
  size_t count = 0;
  for (; bytes != 0; ++count) bytes -= pages[count].bytes;
  return pages.first(count);
}

}  // namespace

bool Growth::claim_place(Miss& miss) {
  if (miss.place.claim != nullptr) return true;
  for (;;) {
    Arena* arena = nullptr;
    {
      const Locked guard(heap_.lock);
      arena = &arena_of(heap_, miss);
      if (arena->has_gap(miss.size)) return plan_and_claim(miss, *arena);
    }
    // Another thread may take what is added, too.
    const char* call = "";
    const CUresult result = add_segment(*arena, miss.size, &call);
    if (result == CUDA_SUCCESS) continue;
    refused(miss, result, call);
    return false;
  }
}

bool Growth::plan_and_claim(Miss& miss, Arena& arena) {
  // The driver is asked again even if it refused before: somebody may have made room since.
  const uint64_t have_bytes = heap_.pages.obtainable(miss.pages);
  const std::optional<Placement> placement =
      arena.plan(miss.size, have_bytes, 0, heap_.tiling.kept_bytes(arena, miss.waits()));
  if (!placement) return false;
  miss.place = {.arena = &arena, .placement = *placement};
  miss.place.claim = arena.claim(*placement, &miss.place.voids);
  return true;
}

// Twice the device, so that a place for any request is left however the space fragments. Private pools and
// the small requests begin with a part of that and double, because they are many and the driver's addresses
// end.
uint64_t Growth::next_segment_bytes(const Arena& arena) {
  constexpr uint64_t kFirstShare = 8, kMostDoublings = 4;
  const uint64_t total = heap_.device->total_bytes(), page = heap_.page_bytes;
  if (arena.pool() == 0 && !arena.small()) return total / page * page * 2;
  const Locked guard(heap_.lock);
  const uint64_t doublings = std::min<uint64_t>(arena.segments().size(), kMostDoublings);
  return (total / kFirstShare << doublings) / page * page;
}

CUresult Growth::add_segment(Arena& arena, uint64_t size, const char** call) {
  const uint64_t page = heap_.page_bytes;
  *call = "cuMemAddressReserve";
  if (size > heap_.device->total_bytes() / page * page) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t least = (size + page - 1) / page * page;
  AddressRange range;
  CUresult result = CUDA_SUCCESS;
  // Less where that is refused.
  for (uint64_t bytes = std::max(next_segment_bytes(arena), least);;
       bytes = std::max(bytes / 2 / page * page, least)) {
    result = heap_.device->reserve(bytes, &range);
    if (result == CUDA_SUCCESS || bytes == least) break;
  }
  if (result != CUDA_SUCCESS) return result;
  if (range.end > uint64_t{1} << PageMap::kAddressBits) {
    heap_.device->release_range(range);
    return CUDA_ERROR_INVALID_ADDRESS_SPACE;
  }
  bool added = false;
  {
    const Locked guard(heap_.lock);
    added = arena.add_segment(range);
  }
  if (!added) {
    heap_.device->release_range(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  trace::Record record;
  record.kind = trace::Kind::kSegmentReserve;
  record.address = range.begin;
  record.bytes = range.bytes();
  record.stream = static_cast<uint64_t>(arena.stream());
  journal::write(heap_, record);
  return CUDA_SUCCESS;
}

// Only the want of memory may become a shortage; any other error ends the request.
Served Growth::refused(Miss& miss, CUresult result, const char* call) {
  journal::driver_failure(heap_, miss.size, result, call);
  if (miss.place.claim != nullptr) drop_claim(miss);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return Served::kShort;
  miss.error = result;
  miss.call = call;
  return Served::kFailed;
}

Served Growth::get_pages(Miss& miss) {
  miss.place.placement = {};
  miss.place.placement.need_bytes = miss.size;
  const Served served = supply(miss, {&miss.size, 1});
  miss.served = served == Served::kYes;
  return served;
}

Served Growth::supply(Miss& miss, std::span<const uint64_t> runs) {
  CUresult error = CUDA_SUCCESS;
  const Supplied supplied = supply_.fill(&miss.pages, runs, &error);
  if (supplied == Supplied::kNoRoom) {
    if (miss.place.claim != nullptr) drop_claim(miss);
    return Served::kShort;
  }
  miss.refused = error == CUDA_ERROR_OUT_OF_MEMORY;
  return supplied == Supplied::kYes ? Served::kYes : refused(miss, error, "cuMemCreate");
}

Served Growth::fill(Miss& miss) {
  reuse_idle(miss);
  std::vector<uint64_t> runs;
  runs.reserve(miss.place.voids.size());
  for (const AddressRange& run : miss.place.voids) runs.push_back(run.bytes());
  if (const Served supplied = supply(miss, runs); supplied != Served::kYes) return supplied;
  const AddressRange& claim = miss.place.placement.claim;
  const uint64_t low = claim.begin / heap_.page_bytes * heap_.page_bytes;
  heap_.shared.page_map.prepare(low, claim.end - low, miss.place.arena->small());
  const SharedLocked mapping(heap_.mappings_mutex);
  if (const CUresult result = map_claim(miss); result != CUDA_SUCCESS)
    return refused(miss, result, "cuMemMap and cuMemSetAccess");
  for (const AddressRange& run : miss.place.voids)
    journal::tell_pages(heap_, Change::kMapped, *miss.place.arena, run);
  finish(miss);
  return Served::kYes;
}

// Maps pages of the reservation behind every void of the claim, or none.
CUresult Growth::map_claim(Miss& miss) {
  const std::vector<driver::Page> pages = miss.pages.last(miss.place.placement.need_bytes);
  std::span<const driver::Page> left = pages;
  for (const AddressRange& run : miss.place.voids) {
    const std::span<const driver::Page> behind = first_bytes(left, run.bytes());
    const CUresult result = heap_.device->map(run.begin, behind);
    journal::pages(heap_, trace::Kind::kPageMap, run, result);
    if (result != CUDA_SUCCESS) {
      undo_map(miss, pages, run);
      return result;
    }
    left = left.subspan(behind.size());
  }
  return CUDA_SUCCESS;
}

// What could be mapped but cannot be unmapped again becomes part of the arena.
void Growth::undo_map(Miss& miss, std::span<const driver::Page> pages, const AddressRange& failed) {
  for (const AddressRange& run : miss.place.voids) {
    if (run.begin == failed.begin) return;
    const std::span<const driver::Page> behind = first_bytes(pages, run.bytes());
    pages = pages.subspan(behind.size());
    if (heap_.device->unmap(run.begin, run.bytes()) == CUDA_SUCCESS) continue;
    journal::tell_pages(heap_, Change::kMapped, *miss.place.arena, run);
    const Locked guard(heap_.lock);
    set_pages(*miss.place.arena, run.begin, behind);
    for (const driver::Page& page : behind) miss.pages.remove(page);
    heap_.pages.map(run.bytes());
  }
}

void Growth::finish(Miss& miss) {
  journal::BlockRecord served{.kind = trace::Kind::kAllocate,
                              .bytes = miss.size,
                              .requested = miss.request.bytes,
                              .stream = miss.request.stream,
                              .value = miss.request.pool};
  bool tell_memory = false;
  {
    const Locked guard(heap_.lock);
    fill_voids(miss);
    Place& place = miss.place;
    miss.address = served.address = place.placement.address;
    Block* block = place.arena->finish(place.claim, miss.address, miss.size, miss.request.bytes);
    place.claim = nullptr;
    served.order = heap_.commit(block);
    heap_.note_need();
    // A sample now and then: every one would crowd the trace's ring of rare events.
    const uint64_t held = heap_.pages.held(), told = heap_.told.held;
    tell_memory = std::max(held, told) - std::min(held, told) > heap_.device->total_bytes() / 256;
  }
  miss.served = true;
  journal::block(heap_, served);
  if (tell_memory) journal::memory(heap_);
}

void Growth::fill_voids(Miss& miss) {
  const std::vector<driver::Page> pages = miss.pages.take_last(miss.place.placement.need_bytes);
  std::span<const driver::Page> left = pages;
  for (const AddressRange& run : miss.place.voids) {
    const std::span<const driver::Page> behind = first_bytes(left, run.bytes());
    set_pages(*miss.place.arena, run.begin, behind);
    left = left.subspan(behind.size());
  }
  heap_.maps += miss.place.voids.size();
  heap_.pages.map(miss.place.placement.need_bytes);
  heap_.pages.note_peak();
}

void Growth::drop_claim(Miss& miss) {
  const Locked guard(heap_.lock);
  miss.place.arena->restore(miss.place.claim, heap_.order);
  miss.place.claim = nullptr;
}

void Growth::release(Miss& miss) {
  if (miss.place.claim != nullptr) drop_claim(miss);
  const Locked guard(heap_.lock);
  heap_.pages.put_back(&miss.pages);
}

}  // namespace spillway
