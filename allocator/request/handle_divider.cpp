#include "allocator/request/handle_divider.h"

#include <algorithm>
#include <map>
#include <set>

#include "allocator/accounting/journal.h"
#include "allocator/tiers/choice/choose.h"

namespace spillway {
namespace {

// The whole pages of [begin, end).
AddressRange whole_pages(uint64_t begin, uint64_t end, uint64_t page) {
  const AddressRange pages{(begin + page - 1) / page * page, end / page * page};
  return {pages.begin, std::max(pages.begin, pages.end)};
}

// The handles that have pages in the range and others outside of it.
std::vector<AddressRange> straddling(const Arena& arena, AddressRange range) {
  std::vector<AddressRange> handles;
  for (uint64_t at = range.begin; at < range.end;) {
    const AddressRange handle = arena.handle_at(at);
    if (handle.begin < range.begin || handle.end > range.end) handles.push_back(handle);
    at = handle.end;
  }
  return handles;
}

// Not what other processes or devices outside of CUDA's mappings know by its physical memory, and not what is
// on its way.
bool may_divide(const HeapState& heap, const PartlyUsedHandle& handle, const Pins& pins)
    SPILLWAY_REQUIRES(heap.lock) {
  const AddressRange now = handle.arena->handle_at(handle.range.begin);
  const CUmemGenericAllocationHandle page = handle.arena->page(handle.range.begin);
  if (now.begin != handle.range.begin || now.end != handle.range.end || !is_page(page) ||
      heap.exports.contains(page) || pins.cover(handle.range.begin, handle.range.bytes()))
    return false;
  for (Block* block = handle.arena->segment_of(handle.range.begin)->first; block != nullptr;
       block = block->next) {
    if (block->address >= handle.range.end) break;
    if (block->end() <= handle.range.begin) continue;
    const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
    if (block->state == BlockState::kBusy || (there != nullptr && there->moving)) return false;
  }
  return true;
}

}  // namespace

std::vector<PartlyUsedHandle> partly_idle_handles(const HeapState& heap) {
  std::map<uint64_t, PartlyUsedHandle> found;
  for (const auto& arena : heap.tiling.arenas()) {
    if (arena->pool() != 0 || !arena->has_pages()) continue;
    arena->each_hole(heap.page_bytes, [&](const Block* hole) {
      const AddressRange pages = whole_pages(hole->address, hole->end(), heap.page_bytes);
      for (const AddressRange& handle : straddling(*arena, pages)) {
        PartlyUsedHandle& entry = found[handle.begin];
        const uint64_t idle = std::min(handle.end, pages.end) - std::max(handle.begin, pages.begin);
        entry = {arena.get(), handle, entry.idle_bytes + idle};
      }
    });
  }
  const Pins pins = heap.shared.pinned();
  std::vector<PartlyUsedHandle> handles;
  for (const auto& [unused, handle] : found)
    if (may_divide(heap, handle, pins)) handles.push_back(handle);
  std::ranges::sort(handles, [](const PartlyUsedHandle& a, const PartlyUsedHandle& b) {
    return a.idle_bytes * b.range.bytes() > b.idle_bytes * a.range.bytes();
  });
  return handles;
}

std::vector<PartlyUsedHandle> handles_under_cold_blocks(const HeapState& heap, const SpillPlace& where,
                                                        const Wanted& wanted) {
  std::vector<PartlyUsedHandle> handles;
  std::set<uint64_t> seen;
  const Pins pins = heap.shared.pinned();
  for (const Move& move : choose_moves(heap, wanted, where, UINT64_MAX, Grain::kPages)) {
    Arena& arena = heap.tiling.arena_of(move.block);
    for (const AddressRange& range : straddling(arena, move.range)) {
      const PartlyUsedHandle handle{&arena, range, 0};
      if (seen.insert(range.begin).second && may_divide(heap, handle, pins)) handles.push_back(handle);
    }
  }
  return handles;
}

// Of idle memory, because the reservation may have none yet. From then on each handle makes the next one's
// pages.
void HandleDivider::get_pages_for(const PartlyUsedHandle& first, PageReservation* own) {
  std::vector<IdleRange> idle;
  {
    const Locked guard(heap_.lock);
    const uint64_t there = heap_.pages.at_hand(*own), need = first.range.bytes();
    if (there < need) idle = heap_.tiling.take_idle(need - there);
  }
  reclaimer_.hold(idle, IdlePages::kKeep, own);
}

uint64_t HandleDivider::divide(const std::vector<PartlyUsedHandle>& handles, uint64_t idle_bytes,
                               PageReservation* own) {
  uint64_t won = 0;
  if (!handles.empty()) get_pages_for(handles.front(), own);
  for (const PartlyUsedHandle& handle : handles) {
    if (won >= idle_bytes || !divide_one(handle, own)) break;
    won += handle.idle_bytes;
  }
  return won;
}

// What changes mappings elsewhere waits: it may be about to take the same handle, which it finds divided
// then.
bool HandleDivider::divide_one(const PartlyUsedHandle& handle, PageReservation* own) {
  const std::vector<uint64_t> pages(handle.range.bytes() / heap_.page_bytes, heap_.page_bytes);
  CUresult result = CUDA_SUCCESS;
  if (supply_.fill(own, pages, &result) != Supplied::kYes) return false;
  const Locked mapping(heap_.mappings_mutex);
  driver::Page whole{0, handle.range.bytes()};
  {
    const Locked guard(heap_.lock);
    if (!may_divide(heap_, handle, heap_.shared.pinned())) return false;
    whole.handle = handle.arena->page(handle.range.begin);
  }
  Remap remap(*heap_.device, handle.range, {whole}, own->last(handle.range.bytes()));
  result = remap.begin();
  if (result == CUDA_SUCCESS)
    result = remap.finish();
  else
    remap.undo();
  migration_.leave_over(remap);
  if (remap.lost())
    journal::driver_failure(heap_, handle.range.bytes(), result, "the way back of a handle that was divided");
  if (result != CUDA_SUCCESS) return false;
  const Locked guard(heap_.lock);
  set_pages(*handle.arena, handle.range.begin, own->take_last(handle.range.bytes()));
  own->add(whole);
  return true;
}

}  // namespace spillway
