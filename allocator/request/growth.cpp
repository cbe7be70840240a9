#include "allocator/request/growth.h"

#include <algorithm>

#include "allocator/accounting/journal.h"

namespace spillway {

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
  if (!provision(miss)) return Served::kShort;
  const Served served = create_promised(miss);
  miss.served = served == Served::kYes;
  return served;
}

Served Growth::create_promised(Miss& miss) {
  while (miss.pages.in_pages() < miss.place.placement.need_bytes) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = heap_.device->create(&handle);
    journal::page(heap_, trace::Kind::kPageCreate, handle, heap_.page_bytes, result);
    if (result != CUDA_SUCCESS) {
      miss.refused = result == CUDA_ERROR_OUT_OF_MEMORY;
      {
        // What the driver does not have is not held either.
        const Locked guard(heap_.lock);
        heap_.pages.take_promise_back(&miss.pages);
      }
      return refused(miss, result, "cuMemCreate");
    }
    miss.pages.promised_bytes -= heap_.page_bytes;
    miss.pages.pages.push_back(handle);
  }
  miss.refused = false;
  return Served::kYes;
}

Served Growth::fill(Miss& miss) {
  reuse_idle(miss);
  if (!provision(miss)) {
    drop_claim(miss);
    return Served::kShort;
  }
  if (const Served created = create_promised(miss); created != Served::kYes) return created;
  const AddressRange& claim = miss.place.placement.claim;
  const uint64_t low = claim.begin / heap_.page_bytes * heap_.page_bytes;
  heap_.shared.page_map.prepare(low, claim.end - low, miss.place.arena->small());
  std::vector<driver::Page> pages;
  const SharedLocked mapping(heap_.mappings_mutex);
  if (const CUresult result = map_claim(miss, &pages); result != CUDA_SUCCESS)
    return refused(miss, result, "cuMemMap and cuMemSetAccess");
  for (const AddressRange& run : miss.place.voids)
    journal::tell_pages(heap_, Change::kMapped, *miss.place.arena, run);
  finish(miss, pages);
  return Served::kYes;
}

bool Growth::provision(Miss& miss) {
  const uint64_t need = miss.place.placement.need_bytes;
  const Locked guard(heap_.lock);
  heap_.pages.reserve_spare(&miss.pages, need);
  const uint64_t have = miss.pages.bytes();
  return have >= need || heap_.pages.promise(&miss.pages, need - have);
}

// Maps pages of the reservation behind every void of the claim, or none.
CUresult Growth::map_claim(Miss& miss, std::vector<driver::Page>* pages) {
  const uint64_t count = miss.place.placement.need_bytes / heap_.page_bytes;
  for (auto it = miss.pages.pages.rbegin(); pages->size() < count; ++it)
    pages->push_back({*it, heap_.page_bytes});
  const std::vector<AddressRange>& runs = miss.place.voids;
  uint64_t done = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint64_t run_pages = runs[i].bytes() / heap_.page_bytes;
    const CUresult result = heap_.device->map(runs[i].begin, {pages->data() + done, run_pages});
    journal::pages(heap_, trace::Kind::kPageMap, runs[i], result);
    if (result != CUDA_SUCCESS) {
      undo_map(miss, *pages, i);
      return result;
    }
    done += run_pages;
  }
  return CUDA_SUCCESS;
}

// What could be mapped but can not be unmapped again becomes part of the arena.
void Growth::undo_map(Miss& miss, const std::vector<driver::Page>& pages, size_t mapped) {
  uint64_t done = 0;
  for (size_t i = 0; i < mapped; ++i) {
    const AddressRange& run = miss.place.voids[i];
    const uint64_t count = run.bytes() / heap_.page_bytes;
    if (heap_.device->unmap(run.begin, run.bytes()) != CUDA_SUCCESS) {
      journal::tell_pages(heap_, Change::kMapped, *miss.place.arena, run);
      const Locked guard(heap_.lock);
      for (uint64_t page = 0; page < count; ++page) {
        const CUmemGenericAllocationHandle handle = pages[done + page].handle;
        miss.place.arena->set_page(run.begin + page * heap_.page_bytes, handle);
        std::erase(miss.pages.pages, handle);
      }
      heap_.pages.map(run.bytes());
    }
    done += count;
  }
}

void Growth::finish(Miss& miss, const std::vector<driver::Page>& pages) {
  journal::BlockRecord served{.kind = trace::Kind::kAllocate,
                              .bytes = miss.size,
                              .requested = miss.request.bytes,
                              .stream = miss.request.stream,
                              .value = miss.request.pool};
  bool tell_memory = false;
  {
    const Locked guard(heap_.lock);
    fill_voids(miss, pages);
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

void Growth::fill_voids(Miss& miss, const std::vector<driver::Page>& pages) {
  uint64_t next = 0;
  for (const AddressRange& run : miss.place.voids)
    for (uint64_t address = run.begin; address < run.end; address += heap_.page_bytes)
      miss.place.arena->set_page(address, pages[next++].handle);
  miss.pages.pages.resize(miss.pages.pages.size() - pages.size());
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
