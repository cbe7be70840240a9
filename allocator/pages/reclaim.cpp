// Idle pages: which there are, when nothing on the device can touch them any more, and taking them out.
#include "allocator/pages/reclaim.h"

#include <algorithm>

#include "allocator/heap.h"

namespace spillway {
namespace {
// Other threads may free all the time, so that something is always left to wait for.
constexpr int kMostDrains = 256;
}  // namespace

// Whole pages in holes, of arenas that give pages.
DeviceHeap::Idle DeviceHeap::idle_bytes() {
  Idle idle;
  for (auto& arena : arenas_) {
    if (!arena->gives_pages() || arena->single_handle) continue;
    arena->each_hole(page_bytes_, [&](const Block* hole) {
      const uint64_t bytes = arena->whole_pages(hole).bytes();
      idle.all += bytes;
      if (hole->tag <= arena->drained_order) idle.drained += bytes;
    });
  }
  return idle;
}

// Takes whole idle pages out, as busy blocks, from the largest holes first: that leaves the fewest gaps.
std::vector<DeviceHeap::IdleRange> DeviceHeap::take_idle(uint64_t bytes, bool drained_only, uint64_t pool) {
  struct Candidate {
    uint64_t bytes;
    Arena* arena;
    Block* hole;
  };
  std::vector<Candidate> candidates;
  for (auto& arena : arenas_) {
    if (!arena->gives_pages() || arena->single_handle) continue;
    if (pool != kEveryPool && arena->pool() != pool) continue;
    arena->each_hole(page_bytes_, [&](Block* hole) {
      const uint64_t whole = arena->whole_pages(hole).bytes();
      if (whole != 0 && (!drained_only || hole->tag <= arena->drained_order))
        candidates.push_back({whole, arena.get(), hole});
    });
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bytes > b.bytes; });
  std::vector<IdleRange> victims;
  for (const Candidate& candidate : candidates) {
    if (bytes == 0) break;
    const uint64_t pages = std::min(candidate.bytes / page_bytes_, (bytes - 1) / page_bytes_ + 1);
    const uint64_t take = pages * page_bytes_;
    AddressRange range = candidate.arena->whole_pages(candidate.hole);
    range.begin = range.end - take;
    victims.push_back(
        {candidate.arena, candidate.arena->claim_pages(candidate.hole, range), range, false, {}});
    bytes -= std::min(bytes, take);
  }
  return victims;
}

// Without the lock: their blocks are busy.
uint64_t DeviceHeap::unmap_victims(std::vector<IdleRange>& victims) {
  uint64_t bytes = 0;
  for (IdleRange& victim : victims) {
    const CUresult result = device_->unmap(victim.range.begin, victim.range.bytes());
    victim.unmapped = result == CUDA_SUCCESS;
    if (victim.unmapped) tell_pages(Change::kUnmapped, *victim.arena, victim.range);
    bytes += victim.unmapped ? victim.range.bytes() : 0;
    trace::Record record;
    record.kind = trace::Kind::kPageUnmap;
    record.address = victim.range.begin;
    record.bytes = victim.range.bytes();
    record.value = result;
    write(record);
  }
  return bytes;
}

// Puts the victims' blocks back, as voids or, where unmapping failed, as the holes that they were. The pages
// count as reserved from here on.
uint64_t DeviceHeap::settle_victims(std::vector<IdleRange>& victims,
                                    std::vector<CUmemGenericAllocationHandle>* pages) {
  const Locked guard(lock_);
  uint64_t bytes = 0;
  for (IdleRange& victim : victims) {
    unmaps_ += victim.unmapped ? 1 : 0;
    for (uint64_t address = victim.range.begin; victim.unmapped && address < victim.range.end;
         address += page_bytes_) {
      pages->push_back(victim.arena->page(address));
      victim.arena->set_page(address, 0);
      bytes += page_bytes_;
    }
    victim.arena->restore(victim.busy, order_);
  }
  mapped_bytes_ -= bytes;
  reserved_bytes_ += bytes;
  return bytes;
}

uint64_t DeviceHeap::take_out(std::vector<IdleRange>& victims,
                              std::vector<CUmemGenericAllocationHandle>* pages) {
  const SharedLocked mapping(mappings_mutex_);
  unmap_victims(victims);
  return settle_victims(victims, pages);
}

bool DeviceHeap::anything_captures() {
  std::vector<StreamId> streams;
  {
    const Locked guard(lock_);
    for (const auto& arena : arenas_) streams.push_back(arena->stream());
  }
  return std::any_of(streams.begin(), streams.end(), [&](StreamId it) { return device_->capturing(it); });
}

// A wait for the device would break a capture, whoever makes it.
CUresult DeviceHeap::drain_device() {
  return anything_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : device_->drain_all();
}

CUresult DeviceHeap::drain(StreamId stream) {
  const CUresult result = device_->drain(stream);
  return result == CUDA_SUCCESS ? result : drain_device();
}

// Waits for the stream of the arena with the most idle bytes that may still be in use. False: none is left.
bool DeviceHeap::drain_one(std::vector<Arena*>* skipped) {
  Arena* target = nullptr;
  uint64_t order = 0;
  {
    const Locked guard(lock_);
    uint64_t most = 0;
    for (auto& arena : arenas_) {
      if (!arena->gives_pages() || arena->single_handle ||
          std::find(skipped->begin(), skipped->end(), arena.get()) != skipped->end())
        continue;
      uint64_t bytes = 0;
      arena->each_hole(page_bytes_, [&](const Block* hole) {
        if (hole->tag > arena->drained_order) bytes += arena->whole_pages(hole).bytes();
      });
      if (bytes <= most) continue;
      most = bytes;
      target = arena.get();
    }
    order = order_;
  }
  if (target == nullptr) return false;
  // A released pool's graphs may still be running on any stream, not only on the one that captured them.
  const bool any_stream = target->pool() != 0;
  const CUresult result = device_->capturing(target->stream()) ? CUDA_ERROR_NOT_READY
                          : any_stream                         ? drain_device()
                                                               : drain(target->stream());
  if (result != CUDA_SUCCESS) {
    skipped->push_back(target);
    return true;
  }
  const Locked guard(lock_);
  for (auto& arena : arenas_) {
    const bool drained =
        any_stream ? arena->gives_pages() : arena->pool() == 0 && arena->stream() == target->stream();
    if (drained) arena->drained_order = std::max(arena->drained_order, order);
  }
  return true;
}

// Releases `pages`, which count as reserved; those that the driver does not take back stay in it.
uint64_t DeviceHeap::release_pages(std::vector<CUmemGenericAllocationHandle>& pages) {
  uint64_t bytes = 0;
  std::vector<CUmemGenericAllocationHandle> kept;
  for (CUmemGenericAllocationHandle page : pages) {
    const CUresult result = device_->release(page);
    trace::Record record;
    record.kind = trace::Kind::kPageRelease;
    record.bytes = page_bytes_;
    record.value = result;
    record.detail = page;
    write(record);
    if (result == CUDA_SUCCESS)
      bytes += page_bytes_;
    else
      kept.push_back(page);
  }
  pages.swap(kept);
  return bytes;
}

// Pages of the victims into the reservation, as pages or as budget. Returns the bytes that came out.
uint64_t DeviceHeap::hold(std::vector<IdleRange>& victims, PageReservation& reservation, IdlePages what) {
  std::vector<CUmemGenericAllocationHandle> pages;
  const uint64_t bytes = take_out(victims, &pages);
  if (what == IdlePages::kGiveBack) reservation.promised_bytes += release_pages(pages);
  reservation.pages.insert(reservation.pages.end(), pages.begin(), pages.end());
  return bytes;
}

ReclaimEstimate DeviceHeap::estimate_reclaim(const Miss& miss, uint64_t short_bytes, IdlePages what) {
  ReclaimEstimate out;
  const Locked guard(lock_);
  const Idle idle = idle_bytes();
  if (fits(miss)) {
    // Nothing is short: only a failure that was injected may still want an idle page returned.
    if (!miss.injected || what != IdlePages::kGiveBack) return out;
    out.pages = std::min(idle.all, (miss.size + page_bytes_ - 1) / page_bytes_ * page_bytes_) / page_bytes_;
    out.useful_bytes = out.pages * page_bytes_;
    return out;
  }
  if (miss.arena->single_handle) {
    const uint64_t missing = short_of_single(miss);
    if (what != IdlePages::kGiveBack || missing == 0 || idle.all < missing) return out;
    out.pages = (missing + page_bytes_ - 1) / page_bytes_;
    out.useful_bytes = short_bytes;
    out.waits = missing > idle.drained;
    return out;
  }
  const std::optional<Placement> place = place_for(miss, have(miss), idle.all);
  if (!place || place->need_bytes <= have(miss)) return out;
  out.pages = (place->need_bytes - have(miss) + page_bytes_ - 1) / page_bytes_;
  out.useful_bytes = short_bytes;
  out.waits = out.pages * page_bytes_ > idle.drained;
  return out;
}

bool DeviceHeap::fits(const Miss& miss) const {
  return miss.returning == nullptr && miss.arena->best(miss.size) != nullptr;
}

// A block that comes back needs pages and has its place.
std::optional<Placement> DeviceHeap::place_for(const Miss& miss, uint64_t has, uint64_t idle) const {
  if (miss.returning == nullptr) return miss.arena->plan(miss.size, has, idle);
  Placement pages;
  pages.need_bytes = miss.size;
  return pages.need_bytes <= has + idle ? std::optional(pages) : std::nullopt;
}

void DeviceHeap::take_place(Miss& miss, const Placement& place) {
  PageReservation& reservation = miss.reservation;
  reservation.voids.clear();
  reservation.placement = place;
  reservation.arena = miss.arena;
  if (miss.returning == nullptr) reservation.claim = miss.arena->claim(place, &reservation.voids);
}

uint64_t DeviceHeap::reclaim(Miss& miss, IdlePages what) {
  const Device::Scope scope(*device_);
  PageReservation& reservation = miss.reservation;
  std::vector<Arena*> skipped;
  for (int round = 0;; ++round) {
    std::vector<IdleRange> victims;
    bool placed = false;
    {
      const Locked guard(lock_);
      if (reservation.claim != nullptr) return 0;
      if (miss.arena->single_handle || fits(miss)) break;
      const uint64_t has = have(miss);
      const auto place = place_for(miss, has, idle_bytes().drained);
      placed = place.has_value();
      if (placed) {
        take_place(miss, *place);
        if (place->need_bytes > has) victims = take_idle(place->need_bytes - has, true);
      } else if (!place_for(miss, has, idle_bytes().all)) {
        return 0;
      }
    }
    if (placed) return hold(victims, reservation, what);
    if (round == kMostDrains || !drain_one(&skipped)) return 0;
  }
  // A hole fits already, because the failure was injected, or no page can help: giving back is what there is
  // to do.
  return what == IdlePages::kGiveBack ? reclaim_anything(reservation, miss.size) : 0;
}

uint64_t DeviceHeap::reclaim_anything(PageReservation& reservation, uint64_t bytes) {
  std::vector<Arena*> skipped;
  for (int round = 0;; ++round) {
    std::vector<IdleRange> victims;
    {
      const Locked guard(lock_);
      const Idle idle = idle_bytes();
      if (idle.drained >= bytes || idle.drained == idle.all) victims = take_idle(bytes, true);
    }
    if (!victims.empty()) return hold(victims, reservation, IdlePages::kGiveBack);
    if (round == kMostDrains || !drain_one(&skipped)) return 0;
  }
}

uint64_t DeviceHeap::give_back(uint64_t most_bytes, uint64_t pool) {
  if (forked()) return 0;
  const Device::Scope scope(*device_);
  if ((slow_.load(std::memory_order_relaxed) & kSlowPending) != 0) poll_events();
  pinned_host_cache_.shrink(0);
  std::vector<Arena*> skipped;
  for (int round = 0; round < kMostDrains && drain_one(&skipped); ++round) continue;
  uint64_t bytes = release_spare(most_bytes);
  if (bytes < most_bytes) bytes += release_singles(pool);
  if (bytes >= most_bytes) return bytes;
  std::vector<IdleRange> victims;
  std::vector<CUmemGenericAllocationHandle> pages;
  {
    const Locked guard(lock_);
    victims = take_idle(most_bytes - bytes, true, pool);
  }
  take_out(victims, &pages);
  const uint64_t released = release_pages(pages);
  const Locked guard(lock_);
  reserved_bytes_ -= released + pages.size() * page_bytes_;
  quota_.give_back(released);
  moved_bytes_ = 0;  // the driver is asked anew from here on
  spare_.insert(spare_.end(), pages.begin(), pages.end());
  return bytes + released;
}

bool wait_until_all_idle(Allocator& allocator) noexcept {
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}) && !allocator.heap(DeviceId{i}, nullptr, nullptr)->wait_until_idle())
      return false;
  return true;
}

void write_record(Allocator& allocator, DeviceId device, trace::Record record) noexcept {
  if (allocator.uses(device)) return allocator.heap(device, nullptr, nullptr)->write(record);
  trace::Trace* trace = allocator.trace();
  if (trace == nullptr) return;
  record.order = allocator.next_order();
  record.device = static_cast<uint8_t>(device);
  trace->write(record);
}

}  // namespace spillway
