#include "strategies/spill_offer.h"

#include <algorithm>
#include <cstdio>

#include "allocator/costs.h"
#include "allocator/request/verdict.h"

namespace spillway {

uint64_t host_room_bytes(Allocator& allocator, const SpillLimits& limits, DeviceId device, Kept others) {
  const uint64_t elsewhere = others_kept_host_bytes(allocator, device),
                 own = kept_host_bytes(allocator, device);
  const uint64_t usable = own + (others == Kept::kCanBeTaken ? elsewhere : 0);
  const uint64_t there = spilled_bytes(allocator, Tier::kHost) + own + elsewhere - usable;
  const uint64_t budget = limits.host_bytes > there ? limits.host_bytes - there : 0;
  return limits.available == nullptr ? budget : std::min(budget, usable + limits.available());
}

uint64_t host_bytes_to_make(Allocator& allocator, const SpillLimits& limits) {
  constexpr DeviceId kNone{-1};
  const uint64_t there = spilled_bytes(allocator, Tier::kHost) + others_kept_host_bytes(allocator, kNone);
  const uint64_t budget = limits.host_bytes > there ? limits.host_bytes - there : 0;
  return limits.available == nullptr ? budget : std::min(budget, limits.available());
}

Offer refused(const char* format, uint64_t first, uint64_t second) {
  Offer offer;
  std::snprintf(offer.why_not, sizeof offer.why_not, format, size_text(first).c_str(),
                size_text(second).c_str());
  return offer;
}

Offer offer_of(const SpillEstimate& estimate, Tier tier, double most_slowdown) {
  if (estimate.movable_bytes < estimate.needed_bytes)
    return refused(
        tier == Tier::kHost
            ? "of %s that must go, only %s can: the rest is pinned, or shares pages with what is"
            : "of %s that must go, only %s can: the rest is pinned, or shares pages with other blocks",
        estimate.needed_bytes, estimate.movable_bytes);
  Offer offer;
  if (most_slowdown != 0 && estimate.slowdown > most_slowdown) {
    offer.takes = Takes::kSlow;
    char now[40] = "";
    if (estimate.measured > 1)
      std::snprintf(now, sizeof now, "runs %.1f times as long and ", estimate.measured);
    std::snprintf(offer.why_not, sizeof offer.why_not,
                  "the program %swould run %.1f times as long, and --max-slowdown allows %.1f", now,
                  estimate.slowdown, most_slowdown);
  }
  const double copy_us = static_cast<double>(estimate.bytes) / estimate.bytes_per_us;
  // Pages change places while others are copied.
  const uint64_t pages = estimate.bytes / costs::kCostPageBytes;
  const auto remap_us = static_cast<double>(pages * costs::kRemapUs);
  offer.bytes = estimate.useful_bytes;
  offer.cost_us = static_cast<uint64_t>(estimate.make_us + std::max(copy_us, remap_us)) + costs::kQuiesceUs;
  return offer;
}

}  // namespace spillway
