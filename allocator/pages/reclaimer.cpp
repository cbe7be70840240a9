#include "allocator/pages/reclaimer.h"

#include <algorithm>

#include "allocator/accounting/journal.h"

namespace spillway {

bool Reclaimer::drain_one(std::vector<Arena*>* skipped) {
  Arena* target = nullptr;
  uint64_t order = 0;
  {
    const Locked guard(heap_.lock);
    target = heap_.tiling.most_undrained(*skipped);
    order = heap_.order;
  }
  if (target == nullptr) return false;
  // A released pool's graphs may still be running on any stream, not only on the one that captured them.
  std::optional<StreamId> drained;
  const CUresult result = target->pool() != 0 ? drain_.device() : drain_.stream_of(*target, &drained);
  if (result != CUDA_SUCCESS) {
    skipped->push_back(target);
    return true;
  }
  const Locked guard(heap_.lock);
  heap_.tiling.drained(drained, order);
  return true;
}

// Without the lock: their blocks are busy.
void Reclaimer::unmap(std::vector<IdleRange>& idle) {
  for (IdleRange& it : idle) {
    const CUresult result = heap_.device->unmap(it.range.begin, it.range.bytes());
    it.unmapped = result == CUDA_SUCCESS;
    if (it.unmapped) journal::tell_pages(heap_, Change::kUnmapped, *it.arena, it.range);
    journal::pages(heap_, trace::Kind::kPageUnmap, it.range, result);
  }
}

// Puts the blocks back, as voids or, where unmapping failed, as the holes that they were.
void Reclaimer::settle(std::vector<IdleRange>& idle, PagePool::Pages* pages) {
  const Locked guard(heap_.lock);
  for (IdleRange& it : idle) {
    if (it.unmapped) {
      ++heap_.unmaps;
      const PagePool::Pages handles = handles_in(*it.arena, it.range);
      pages->insert(pages->end(), handles.begin(), handles.end());
      it.arena->set_pages(it.range, 0);
    }
    it.arena->restore(it.busy, heap_.order);
  }
  heap_.pages.unmap(bytes_of(*pages));
}

PagePool::Pages Reclaimer::take_out(std::vector<IdleRange>& idle) {
  PagePool::Pages pages;
  const SharedLocked mapping(heap_.mappings_mutex);
  unmap(idle);
  settle(idle, &pages);
  return pages;
}

uint64_t Reclaimer::release(PagePool::Pages& pages) {
  uint64_t bytes = 0;
  PagePool::Pages kept;
  for (const driver::Page& page : pages) {
    const CUresult result = heap_.device->release(page.handle);
    journal::page(heap_, trace::Kind::kPageRelease, page.handle, page.bytes, result);
    if (result == CUDA_SUCCESS)
      bytes += page.bytes;
    else
      kept.push_back(page);
  }
  pages.swap(kept);
  const Locked guard(heap_.lock);
  heap_.handles.released(bytes);
  return bytes;
}

uint64_t Reclaimer::hold(std::vector<IdleRange>& idle, IdlePages what, PageReservation* into) {
  PagePool::Pages pages = take_out(idle);
  const uint64_t bytes = bytes_of(pages);
  if (what == IdlePages::kGiveBack) into->promised_bytes += release(pages);
  into->add(pages);
  return bytes;
}

void Reclaimer::hold_unmapped(std::vector<IdleRange>& idle, PageReservation* into) {
  PagePool::Pages pages;
  unmap(idle);
  settle(idle, &pages);
  into->add(pages);
}

uint64_t Reclaimer::reclaim_anything(uint64_t bytes, PageReservation* into) {
  std::vector<IdleRange> idle;
  drain_until([&] {
    const Locked guard(heap_.lock);
    const IdleBytes there = heap_.tiling.idle_bytes();
    if (there.drained >= bytes || there.drained == there.all) idle = heap_.tiling.take_idle(bytes);
    return !idle.empty();
  });
  return idle.empty() ? 0 : hold(idle, IdlePages::kGiveBack, into);
}

uint64_t Reclaimer::release_idle(uint64_t bytes_asked, uint64_t pool, Round round) {
  std::vector<IdleRange> idle;
  {
    const Locked guard(heap_.lock);
    idle = heap_.tiling.take_idle(bytes_asked, pool, round);
  }
  PagePool::Pages pages = take_out(idle);
  const uint64_t bytes = release(pages);
  const Locked guard(heap_.lock);
  heap_.pages.settle_release(bytes, pages);
  return bytes;
}

uint64_t Reclaimer::release_spare(uint64_t bytes_asked, Round round) {
  PagePool::Pages pages;
  {
    const Locked guard(heap_.lock);
    pages = heap_.pages.take_spare(bytes_asked, round);
  }
  const uint64_t bytes = release(pages);
  const Locked guard(heap_.lock);
  heap_.pages.settle_release(bytes, pages);
  return bytes;
}

}  // namespace spillway
