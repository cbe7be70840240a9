// The way of a request that no hole fits: a place for it, and new pages behind that.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {

uint64_t DeviceHeap::pages_at_hand(const Miss& miss) const {
  return (miss.reservation.pages.size() + spare_.size()) * page_bytes_;
}

// The same and what the driver may create, unless it has just refused to.
uint64_t DeviceHeap::have(const Miss& miss) const {
  return pages_at_hand(miss) + (miss.refused ? 0 : miss.reservation.promised_bytes + quota_.room());
}

Status DeviceHeap::miss(const Request& request, uint64_t size, bool injected, bool persistent,
                        uint64_t* address, FailurePtr* failure) {
  const Device::Scope scope(*device_);
  Miss miss{request, size, PageReservation(page_bytes_), injected, persistent};
  Served served = Served::kShort;
  if (!injected) {
    if ((slow_.load(std::memory_order_relaxed) & kSlowPending) != 0 && !device_->capturing(request.stream))
      poll_events();
    served = serve(miss);
    if (served == Served::kShort && release_singles(kEveryPool) != 0) served = serve(miss);
    if (served == Served::kShort && borrow(miss)) served = Served::kYes;
  }
  if (served != Served::kFailed) learn_under_pressure(served == Served::kShort);
  Status status = Status::kOk;
  if (served == Served::kShort) status = run_handler(miss, failure);
  if (served == Served::kFailed) status = driver_failure(miss, failure);
  release_reservation(miss);
  if (status == Status::kOk) *address = miss.address;
  return status;
}

// Searches the holes, then a place for new pages; with what the reservation holds, if anything.
DeviceHeap::Served DeviceHeap::serve(Miss& miss) {
  look_beside_reserve();
  if (miss.returning != nullptr) return serve_returning(miss);
  Arena* arena = nullptr;
  if (serve_from_holes(miss, &arena)) return Served::kYes;
  if (arena->single_handle) return serve_single(miss, *arena);
  if (!claim_place(miss)) {
    if (miss.error != CUDA_SUCCESS) return Served::kFailed;
    // The last resort of a small request, also where there are no addresses for it: a hole among the large
    // ones.
    return arena->small() && serve_from_large_holes(miss) ? Served::kYes : Served::kShort;
  }
  move_idle(miss, *miss.reservation.arena);
  return fill_claim(miss);
}

std::optional<uint64_t> DeviceHeap::take_hole(Miss& miss, Arena& arena) {
  const uint64_t size = arena.small() ? miss.size : std::max(miss.size, kSmallBytes + kUnitBytes);
  Block* hole = find_hole(arena, size, miss.waits());
  if (hole == nullptr) return std::nullopt;
  miss.block = arena.take(hole, size, miss.request.bytes);
  miss.address = miss.block->address;
  miss.block_bytes = miss.block->size;
  const uint64_t order = commit(miss.block);
  note_need();
  return order;
}

void DeviceHeap::trace_served(const Miss& miss, uint64_t order) {
  trace_block(trace::Kind::kAllocate, order, miss.address, miss.block_bytes, miss.request.bytes,
              miss.request.stream, miss.request.pool);
}

// `arena`: where the request belongs.
bool DeviceHeap::serve_from_holes(Miss& miss, Arena** arena) {
  std::optional<uint64_t> order;
  {
    const Locked guard(lock_);
    *arena = &arena_for(miss.request.stream, miss.request.pool, miss.size <= kSmallBytes);
    order = take_hole(miss, **arena);
  }
  if (order) trace_served(miss, *order);
  return order.has_value();
}

bool DeviceHeap::serve_from_large_holes(Miss& miss) {
  std::optional<uint64_t> order;
  {
    const Locked guard(lock_);
    order = take_hole(miss, arena_for(miss.request.stream, miss.request.pool, false));
  }
  if (order) trace_served(miss, *order);
  return order.has_value();
}

bool DeviceHeap::lends_to(const Arena& arena, const Miss& miss) {
  return (arena.pool_flags & kPoolLends) != 0 && !arena.single_handle && miss.request.pool == 0 &&
         arena.stream() == miss.request.stream && arena.small() == (miss.size <= kSmallBytes);
}

bool DeviceHeap::borrow(Miss& miss) {
  std::optional<uint64_t> order;
  {
    const Locked guard(lock_);
    for (size_t i = 0; i < arenas_.size() && !order; ++i)
      if (lends_to(*arenas_[i], miss)) order = take_hole(miss, *arenas_[i]);
  }
  if (order) trace_served(miss, *order);
  return order.has_value();
}

// A place that was claimed before is kept. False: there is none, or `miss.error` says what went wrong.
bool DeviceHeap::claim_place(Miss& miss) {
  if (miss.reservation.claim != nullptr) return true;
  for (;;) {
    Arena* arena = nullptr;
    {
      const Locked guard(lock_);
      arena = &arena_for(miss.request.stream, miss.request.pool, miss.size <= kSmallBytes);
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

bool DeviceHeap::plan_and_claim(Miss& miss, Arena& arena) {
  PageReservation& reservation = miss.reservation;
  // The driver is asked again even if it refused before: somebody may have made room since.
  const uint64_t have_bytes = pages_at_hand(miss) + reservation.promised_bytes + quota_.room();
  const std::optional<Placement> place =
      arena.plan(miss.size, have_bytes, 0, kept_bytes(arena, miss.waits()));
  if (!place) return false;
  reservation.voids.clear();
  reservation.placement = *place;
  reservation.arena = &arena;
  reservation.claim = arena.claim(*place, &reservation.voids);
  return true;
}

// Twice the device, so that a place for any request is left however the space fragments. Private pools and
// the small requests begin with a part of that and double, because they are many and the driver's addresses
// end.
uint64_t DeviceHeap::next_segment_bytes(const Arena& arena) {
  constexpr uint64_t kFirstShare = 8, kMostDoublings = 4;
  const uint64_t most = device_->total_bytes() / page_bytes_ * page_bytes_ * 2;
  if (arena.pool() == 0 && !arena.small()) return most;
  const Locked guard(lock_);
  const uint64_t doublings = std::min<uint64_t>(arena.segments().size(), kMostDoublings);
  return (device_->total_bytes() / kFirstShare << doublings) / page_bytes_ * page_bytes_;
}

CUresult DeviceHeap::add_segment(Arena& arena, uint64_t size, const char** call) {
  *call = "cuMemAddressReserve";
  if (size > device_->total_bytes() / page_bytes_ * page_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t least = (size + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  AddressRange range;
  CUresult result = CUDA_SUCCESS;
  // Less where that is refused.
  for (uint64_t bytes = std::max(next_segment_bytes(arena), least);;
       bytes = std::max(bytes / 2 / page_bytes_ * page_bytes_, least)) {
    result = device_->reserve(bytes, &range);
    if (result == CUDA_SUCCESS || bytes == least) break;
  }
  if (result != CUDA_SUCCESS) return result;
  if (range.end > uint64_t{1} << PageMap::kAddressBits) {
    device_->release_range(range);
    return CUDA_ERROR_INVALID_ADDRESS_SPACE;
  }
  bool added = false;
  {
    const Locked guard(lock_);
    added = arena.add_segment(range);
  }
  if (!added) {
    device_->release_range(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  trace::Record record;
  record.kind = trace::Kind::kSegmentReserve;
  record.address = range.begin;
  record.bytes = range.bytes();
  record.stream = static_cast<uint64_t>(arena.stream());
  write(record);
  return CUDA_SUCCESS;
}

// Only the want of memory may become a shortage; any other error ends the request.
DeviceHeap::Served DeviceHeap::refused(Miss& miss, CUresult result, const char* call) {
  trace::Record record;
  record.kind = trace::Kind::kDriverFailure;
  record.bytes = miss.size;
  record.value = result;
  if (trace::Trace* trace = allocator_.trace()) record.detail = trace->intern(call);
  write(record);
  if (miss.reservation.claim != nullptr) drop_claim(miss);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return Served::kShort;
  miss.error = result;
  miss.call = call;
  return Served::kFailed;
}

// Pages alone: the block has its place.
DeviceHeap::Served DeviceHeap::serve_returning(Miss& miss) {
  miss.reservation.placement = {};
  miss.reservation.placement.need_bytes = miss.size;
  if (!provision(miss)) return Served::kShort;
  const Served served = create_promised(miss);
  if (served == Served::kYes) miss.block = miss.returning;
  return served;
}

DeviceHeap::Served DeviceHeap::create_promised(Miss& miss) {
  PageReservation& reservation = miss.reservation;
  const uint64_t count = reservation.placement.need_bytes / page_bytes_;
  while (reservation.pages.size() < count) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = device_->create(&handle);
    trace::Record record;
    record.kind = trace::Kind::kPageCreate;
    record.bytes = page_bytes_;
    record.value = result;
    record.detail = handle;
    write(record);
    if (result != CUDA_SUCCESS) {
      miss.refused = result == CUDA_ERROR_OUT_OF_MEMORY;
      take_promise_back(reservation);
      return refused(miss, result, "cuMemCreate");
    }
    reservation.promised_bytes -= page_bytes_;
    reservation.pages.push_back(handle);
  }
  miss.refused = false;
  return Served::kYes;
}

DeviceHeap::Served DeviceHeap::fill_claim(Miss& miss) {
  PageReservation& reservation = miss.reservation;
  if (!provision(miss)) {
    drop_claim(miss);
    return Served::kShort;
  }
  if (const Served created = create_promised(miss); created != Served::kYes) return created;
  const AddressRange& claim = reservation.placement.claim;
  const uint64_t low = claim.begin / page_bytes_ * page_bytes_;
  page_map_.prepare(low, claim.end - low, reservation.arena->small());
  std::vector<driver::Page> pages;
  const SharedLocked mapping(mappings_mutex_);
  if (const CUresult result = map_claim(miss, &pages); result != CUDA_SUCCESS)
    return refused(miss, result, "cuMemMap and cuMemSetAccess");
  for (const AddressRange& run : reservation.voids) tell_pages(Change::kMapped, *reservation.arena, run);
  finish_claim(miss, pages);
  return Served::kYes;
}

// What the driver does not have is not held either.
void DeviceHeap::take_promise_back(PageReservation& reservation) {
  const Locked guard(lock_);
  reserved_bytes_ -= reservation.promised_bytes;
  quota_.give_back(reservation.promised_bytes);
  reservation.promised_bytes = 0;
}

// Sets aside spare pages, and budget for pages to create, until the claim can be filled.
bool DeviceHeap::provision(Miss& miss) {
  PageReservation& reservation = miss.reservation;
  const uint64_t need = reservation.placement.need_bytes;
  const Locked guard(lock_);
  while (!spare_.empty() && reservation.pages.size() * page_bytes_ < need) {
    reservation.pages.push_back(spare_.back());
    spare_.pop_back();
    reserved_bytes_ += page_bytes_;
  }
  if (reservation.bytes() >= need) return true;
  const uint64_t missing = need - reservation.bytes();
  if (!quota_.draw(missing)) return false;
  reservation.promised_bytes += missing;
  reserved_bytes_ += missing;
  return true;
}

// Maps pages of the reservation behind every void of the claim, or none. What could be mapped but not be
// unmapped again becomes part of the arena.
CUresult DeviceHeap::map_claim(Miss& miss, std::vector<driver::Page>* pages) {
  PageReservation& reservation = miss.reservation;
  for (auto it = reservation.pages.rbegin(); pages->size() * page_bytes_ < reservation.placement.need_bytes;
       ++it)
    pages->push_back({*it, page_bytes_});
  CUresult result = CUDA_SUCCESS;
  uint64_t done = 0, mapped = 0;
  for (const AddressRange& run : reservation.voids) {
    const uint64_t count = run.bytes() / page_bytes_;
    result = device_->map(run.begin, {pages->data() + done, count});
    trace::Record record;
    record.kind = trace::Kind::kPageMap;
    record.address = run.begin;
    record.bytes = run.bytes();
    record.value = result;
    write(record);
    if (result != CUDA_SUCCESS) break;
    done += count;
    ++mapped;
  }
  if (result == CUDA_SUCCESS) return result;
  done = 0;
  for (uint64_t i = 0; i < mapped; ++i) {
    const AddressRange& run = reservation.voids[i];
    const uint64_t count = run.bytes() / page_bytes_;
    if (device_->unmap(run.begin, run.bytes()) != CUDA_SUCCESS) {
      tell_pages(Change::kMapped, *reservation.arena, run);
      const Locked guard(lock_);
      for (uint64_t page = 0; page < count; ++page) {
        const CUmemGenericAllocationHandle handle = (*pages)[done + page].handle;
        reservation.arena->set_page(run.begin + page * page_bytes_, handle);
        std::erase(reservation.pages, handle);
      }
      mapped_bytes_ += run.bytes();
      reserved_bytes_ -= run.bytes();
    }
    done += count;
  }
  return result;
}

void DeviceHeap::finish_claim(Miss& miss, const std::vector<driver::Page>& pages) {
  uint64_t order = 0;
  bool sample = false;
  {
    const Locked guard(lock_);
    fill_voids(miss.reservation, pages);
    order = take_claim(miss);
    // A sample now and then: every one would crowd the trace's ring of rare events.
    const uint64_t moved = std::max(quota_.held(), sampled_bytes_) - std::min(quota_.held(), sampled_bytes_);
    sample = moved > device_->total_bytes() / 256;
  }
  trace_served(miss, order);
  if (sample) sample_memory();
}

void DeviceHeap::fill_voids(PageReservation& reservation, const std::vector<driver::Page>& pages) {
  uint64_t next = 0;
  for (const AddressRange& run : reservation.voids)
    for (uint64_t address = run.begin; address < run.end; address += page_bytes_)
      reservation.arena->set_page(address, pages[next++].handle);
  reservation.pages.resize(reservation.pages.size() - pages.size());
  maps_ += reservation.voids.size();
  mapped_bytes_ += reservation.placement.need_bytes;
  reserved_bytes_ -= reservation.placement.need_bytes;
  peak_held_ = std::max(peak_held_, quota_.held());  // not earlier: what was promised may not have come
}

uint64_t DeviceHeap::take_claim(Miss& miss) {
  PageReservation& reservation = miss.reservation;
  miss.address = reservation.placement.address;
  miss.block_bytes = miss.size;
  miss.block = reservation.arena->finish(reservation.claim, miss.address, miss.size, miss.request.bytes);
  reservation.claim = nullptr;
  const uint64_t order = commit(miss.block);
  note_need();
  return order;
}

void DeviceHeap::sample_memory() {
  if (allocator_.trace() == nullptr) return;
  trace::Record record;
  record.kind = trace::Kind::kMemory;
  record.detail = trace::clock_ns();
  {
    const Locked guard(lock_);
    sampled_bytes_ = quota_.held();
    record.address = usage_.live().requested;
    record.bytes = quota_.held();
    record.requested = std::min(quota_.limit(), device_->total_bytes());
    record.stream = peak_held_;
    sampled_peak_ = std::max(sampled_peak_, peak_held_);
  }
  write(record);
}

void DeviceHeap::drop_claim(Miss& miss) {
  const Locked guard(lock_);
  miss.reservation.arena->restore(miss.reservation.claim, order_);
  miss.reservation.claim = nullptr;
}

void DeviceHeap::release_reservation(Miss& miss) {
  PageReservation& reservation = miss.reservation;
  if (reservation.claim != nullptr) drop_claim(miss);
  const Locked guard(lock_);
  reserved_bytes_ -= reservation.bytes();
  quota_.give_back(reservation.promised_bytes);
  reservation.promised_bytes = 0;
  spare_.insert(spare_.end(), reservation.pages.begin(), reservation.pages.end());
  reservation.pages.clear();
}

}  // namespace spillway
