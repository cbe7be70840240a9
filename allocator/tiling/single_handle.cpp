// Blocks that are one allocation of the driver's each; see kPoolSingleHandle.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {

Block* Arena::add_single(AddressRange range, uint64_t requested) {
  Block* block = slab_.take();
  block->address = range.begin;
  block->size = range.bytes();
  block->tag = requested;
  block->previous = block->next = nullptr;
  block->arena = index_;
  block->segment = 0;  // nothing asks: it is never merged
  block->state = BlockState::kLive;
  segments_.push_back({range, block, {}});
  return block;
}

void Arena::take_single(Block* hole) {
  detach(hole);
  hole->state = BlockState::kBusy;
}

void Arena::forget_single(Block* busy) {
  std::erase_if(segments_, [&](const Segment& segment) { return segment.first == busy; });
  slab_.put(busy);
}

// Bytes that a single handle still lacks, of the limit or of what the driver has.
uint64_t DeviceHeap::short_of_single(const Miss& miss) const {
  const uint64_t have = miss.refused ? 0 : miss.reservation.promised_bytes + quota_.room();
  return miss.size - std::min(miss.size, have);
}

// Budget for the allocation, into the reservation; spare pages make room for it.
bool DeviceHeap::set_aside(Miss& miss) {
  PageReservation& reservation = miss.reservation;
  for (const bool last : {false, true}) {
    uint64_t lacking = 0;
    {
      const Locked guard(lock_);
      const uint64_t missing = miss.size - std::min(miss.size, reservation.promised_bytes);
      if (quota_.draw(missing)) {
        reservation.promised_bytes += missing;
        reserved_bytes_ += missing;
        return true;
      }
      lacking = missing - std::min(missing, quota_.room());
    }
    if (last || release_spare(lacking) == 0) break;
  }
  return false;
}

DeviceHeap::Served DeviceHeap::serve_single(Miss& miss, Arena& arena) {
  if (!set_aside(miss)) return Served::kShort;
  uint64_t address = 0;
  const CUresult result = device_->allocate(miss.size, &address);
  trace::Record record;
  record.kind = trace::Kind::kPageCreate;
  record.bytes = miss.size;
  record.value = result;
  record.detail = address;
  write(record);
  miss.refused = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return refused(miss, result, "cuMemAlloc");
  const AddressRange range{address, address + miss.size};
  // Only the first page needs slots, and fine ones: these addresses may be anybody's later.
  if (!page_map_.prepare(address / kPageBytes * kPageBytes, kPageBytes, true)) {
    device_->free(address);
    return refused(miss, CUDA_ERROR_INVALID_ADDRESS_SPACE, "cuMemAlloc");
  }
  uint64_t order = 0;
  {
    const Locked guard(lock_);
    miss.block = arena.add_single(range, miss.request.bytes);
    miss.address = address;
    miss.reservation.promised_bytes -= miss.size;
    reserved_bytes_ -= miss.size;
    mapped_bytes_ += miss.size;
    peak_held_ = std::max(peak_held_, quota_.held());
    order = commit(miss.block);
  }
  tell_pages(Change::kMapped, arena, range);
  trace_block(trace::Kind::kAllocate, order, address, miss.size, miss.request.bytes, miss.request.stream,
              miss.request.pool);
  return Served::kYes;
}

// Idle ones of released pools, or of one, back to the driver; returns their bytes.
uint64_t DeviceHeap::release_singles(uint64_t pool) {
  std::vector<std::pair<Arena*, Block*>> idle;
  {
    const Locked guard(lock_);
    for (const auto& arena : arenas_) {
      if (!arena->single_handle || !arena->gives_pages()) continue;
      if (pool == kEveryPool || arena->pool() == pool)
        arena->each_hole(kUnitBytes, [&](Block* hole) { idle.emplace_back(arena.get(), hole); });
    }
    for (const auto& [arena, hole] : idle) arena->take_single(hole);
  }
  // A graph of a released pool's may still be running on any stream.
  const bool unused = !idle.empty() && drain_device() == CUDA_SUCCESS;
  uint64_t bytes = 0;
  for (const auto& [arena, busy] : idle) {
    trace::Record record;
    record.kind = trace::Kind::kPageRelease;
    record.bytes = busy->size;
    record.detail = busy->address;
    record.value = unused ? device_->free(busy->address) : CUDA_ERROR_NOT_READY;
    write(record);
    if (record.value == CUDA_SUCCESS) tell_pages(Change::kUnmapped, *arena, {busy->address, busy->end()});
    const Locked guard(lock_);
    if (record.value != CUDA_SUCCESS) {
      arena->put_hole(busy, busy->tag);
      continue;
    }
    bytes += busy->size;
    mapped_bytes_ -= busy->size;
    quota_.give_back(busy->size);
    arena->forget_single(busy);
  }
  return bytes;
}

// Pages that are mapped nowhere, back to the driver; returns their bytes.
uint64_t DeviceHeap::release_spare(uint64_t most_bytes) {
  std::vector<CUmemGenericAllocationHandle> pages;
  {
    const Locked guard(lock_);
    while (!spare_.empty() && pages.size() * page_bytes_ < most_bytes) {
      pages.push_back(spare_.back());
      spare_.pop_back();
      reserved_bytes_ += page_bytes_;
    }
  }
  const uint64_t bytes = release_pages(pages);
  const Locked guard(lock_);
  reserved_bytes_ -= bytes + pages.size() * page_bytes_;
  quota_.give_back(bytes);
  spare_.insert(spare_.end(), pages.begin(), pages.end());
  return bytes;
}

}  // namespace spillway
