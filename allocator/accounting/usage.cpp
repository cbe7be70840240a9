#include "allocator/accounting/usage.h"

namespace spillway {

void Usage::free_beside_pending(uint64_t bytes, uint64_t requested, bool pending) {
  raise_active_peaks();
  if (!pending) return;
  of(bytes).pending += {1, bytes, requested};
  pending_ += {1, bytes, requested};
}

void Usage::complete(uint64_t bytes, uint64_t requested) {
  raise_active_peaks();
  of(bytes).pending -= {1, bytes, requested};
  pending_ -= {1, bytes, requested};
}

// While nothing is pending, what is active is what is live: then the peaks of the live bytes serve for both.
void Usage::raise_active_peaks() {
  for (Class& it : classes_) it.peak_active.raise_to(it.active());
  peak_active_.raise_to(live() + pending_);
}

UsageLevels Usage::read(const Class& it) {
  return {.live = it.live(),
          .peak_live = it.peak_live,
          .allocated = it.allocated - it.allocated_before,
          .freed = it.freed - it.freed_before,
          .active = it.active(),
          .peak_active = it.peak_active,
          .deactivated = it.freed - it.pending - it.deactivated_before};
}

UsageLevels Usage::read(Of what) {
  peak_live_.raise_to(live());
  raise_active_peaks();
  peak_active_.raise_to(peak_live_);
  for (Class& it : classes_) {
    it.peak_live.raise_to(it.live());
    it.peak_active.raise_to(it.peak_live);
  }
  if (what != Of::kAll) return read(classes_[what == Of::kLarge]);
  UsageLevels all = read(classes_[0]);
  const UsageLevels large = read(classes_[1]);
  all.live += large.live;
  all.allocated += large.allocated;
  all.freed += large.freed;
  all.active += large.active;
  all.deactivated += large.deactivated;
  all.peak_live = peak_live_;
  all.peak_active = peak_active_;
  return all;
}

void Usage::reset_peaks() {
  for (Class& it : classes_) {
    it.peak_live = it.live();
    it.peak_active = it.active();
  }
  peak_live_ = live();
  peak_active_ = live() + pending_;
}

void Usage::reset_totals() {
  for (Class& it : classes_) {
    it.allocated_before = it.allocated;
    it.freed_before = it.freed;
    it.deactivated_before = it.freed - it.pending;
  }
}

}  // namespace spillway
