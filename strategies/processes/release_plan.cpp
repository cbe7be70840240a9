#include "strategies/processes/release_plan.h"

#include <algorithm>

#include "allocator/tiling/block.h"

namespace spillway {
ReleasePlan release_plan_of(const Holding& holding, uint64_t guarantee_bytes) {
  if (guarantee_bytes == 0) return {.framework = true, .every_page = true};
  const FrameworkMemory framework = holding.framework.value_or(FrameworkMemory{});
  const uint64_t held = holding.held_bytes + framework.held_bytes;
  uint64_t spare = held > guarantee_bytes ? held - guarantee_bytes : 0;
  ReleasePlan gift;
  // What is in use stays for certain; of the rest some may, where a segment is in use in part.
  const uint64_t cached = framework.held_bytes - std::min(framework.used_bytes, framework.held_bytes);
  if (cached != 0 && cached <= spare) {
    gift.framework = true;
    spare -= cached;
  }
  gift.every_page = holding.cached_bytes <= spare;
  gift.bytes = gift.every_page ? holding.cached_bytes : spare / kPageBytes * kPageBytes;
  return gift;
}

bool framework_may_give(std::span<const Holding> devices, uint64_t guarantee_bytes) {
  if (guarantee_bytes == 0) return true;
  return std::ranges::all_of(devices, [&](const Holding& holding) {
    const bool idle = holding.framework && holding.framework->held_bytes <= holding.framework->used_bytes;
    return idle || release_plan_of(holding, guarantee_bytes).framework;
  });
}

uint64_t spare_of(const Holding& holding, uint64_t guarantee_bytes, bool framework_may_give) {
  const ReleasePlan gift = release_plan_of(holding, guarantee_bytes);
  const bool framework = framework_may_give && gift.framework && holding.framework;
  return (gift.every_page ? holding.cached_bytes : gift.bytes) +
         (framework ? holding.framework->releasable_bytes : 0);
}

}  // namespace spillway
