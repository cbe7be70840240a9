#include "allocator/accounting/equation.h"

#include <algorithm>

namespace spillway {
namespace {

// What is mapped and free, by who may use it. A source's no strategy can give.
void add_holes(const Tiling& tiling, Memory* out) {
  for (const auto& arena : tiling.arenas()) {
    arena->each_hole(kUnitBytes, [&](const Block* hole) {
      if (!arena->gives_pages() || has_own_source(*arena))
        out->pools += hole->size;
      else if (!arena->has_pages())
        out->cached += is_alone(hole) ? hole->size : 0;
      else
        out->cached += arena->whole_handles(range_of(hole)).bytes();
    });
  }
}

void add_incidents(const spillway_incident_totals& incidents, Memory* out) {
  out->failures = incidents.failures;
  out->rescued = incidents.rescued;
  out->unwound = incidents.unwound;
  out->gave_up = incidents.gave_up;
  out->rescued_bytes = incidents.rescued_bytes;
  out->rescue_us = incidents.rescue_us;
}

std::string check_block(const HeapState& heap, Block* block) SPILLWAY_REQUIRES(heap.lock) {
  const auto flag = [&](SharedWith bit) { return (block->shared & bit) != 0; };
  if (heap.shared.page_map.find(block->address) != block) return "the page map misses a live block";
  if (flag(kOtherStreams) != heap.recorded.contains(block))
    return "a block's streams do not agree with its flag";
  if (flag(kRegistered) != (heap.tiers.registered.find(block) != nullptr))
    return "a registered block does not agree with its flag";
  if (flag(kSited) != heap.holders.contains(block))
    return "a block's place in the program does not agree with its flag";
  if (flag(kSpilled) != heap.tiers.spilled.contains(block))
    return "a block in another tier does not agree with its flag";
  if (block->tag > block->size) return "a block is smaller than what was asked for";
  return "";
}

std::string check_arenas(const HeapState& heap, Recount* count) SPILLWAY_REQUIRES(heap.lock) {
  std::string broken;
  for (const auto& arena : heap.tiling.arenas()) {
    Recount own;
    if (broken = arena->check(&own); !broken.empty()) return broken;
    count->mapped += own.mapped;
    count->live += own.live;
    count->live_sizes += own.live_sizes;
    count->pending += own.pending;
  }
  for (Block* block : heap.tiling.blocks())
    if (broken.empty() && block->state == BlockState::kLive) broken = check_block(heap, block);
  return broken;
}

}  // namespace

Memory memory_of(HeapState& heap, std::optional<uint64_t> known_free) {
  Memory out;
  if (heap.forked()) return out;
  const uint64_t total = heap.device->total_bytes();
  const uint64_t driver_free = known_free ? *known_free : heap.device->free_bytes(UINT64_MAX);
  const Locked guard(heap.lock);
  out.device = total;
  out.limit = std::max(heap.most_bytes(), heap.pages.held());
  const Sums live = heap.usage.live();
  const Sums peak = heap.usage.peak_live();
  out.live = live.requested;
  out.rounding = live.bytes - live.requested;
  out.pending = heap.usage.pending().bytes;
  heap.tiers.spilled.leave_out(&out);
  out.cached = heap.pages.unmapped();  // pages on their way between places are idle too
  add_holes(heap.tiling, &out);
  // What is neither is free in pages partly in use, or in a busy block this instant.
  out.stranded = heap.pages.held() - out.live - out.rounding - out.pending - out.cached - out.pools;
  const uint64_t unheld = out.limit - heap.pages.held();
  const uint64_t guests = std::min(unheld, heap.shared.guests[heap.device_index].load());
  const Quota& quota = heap.pages.quota();
  const uint64_t left = std::min({unheld - guests, driver_free, quota.room_with_reserve()});
  out.free = std::min(left, quota.room());
  out.reserve = left - out.free;
  out.context = std::min(unheld - left, heap.device->context_bytes() + quota.native_since_start());
  out.others = unheld - left - out.context;
  out.reserved = heap.pages.held();
  out.peak_live = peak.requested;
  out.peak_allocated = peak.bytes;
  out.peak_reserved = heap.pages.peak_held();
  add_incidents(heap.incidents, &out);
  out.driver_calls = heap.device->calls();
  return out;
}

bool check_invariants(HeapState& heap, std::string* broken) {
  if (heap.forked()) return true;
  const Locked guard(heap.lock);
  Recount count;
  *broken = check_arenas(heap, &count);
  if (broken->empty()) *broken = heap.exports.check(heap.tiling);
  if (!broken->empty()) return false;
  const auto equal = [&](const char* what, uint64_t counted, uint64_t found) {
    if (counted == found) return true;
    *broken = std::string(what) + ": counted " + std::to_string(counted) + ", found " + std::to_string(found);
    return false;
  };
  const SpilledBlocks& spilled = heap.tiers.spilled;
  return equal("live bytes", heap.usage.live().requested, count.live) &&
         equal("allocated bytes", heap.usage.live().bytes, count.live_sizes) &&
         equal("pending bytes", heap.usage.pending().bytes, count.pending) &&
         equal("bytes in other tiers", spilled.bytes(), spilled.sum()) &&
         equal("mapped bytes", heap.pages.mapped(), count.mapped) &&
         equal("held bytes", heap.pages.held(), heap.pages.mapped() + heap.pages.unmapped());
}

}  // namespace spillway
