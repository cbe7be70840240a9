// What the memory is used for, the limit, and the check of every invariant.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {

Memory DeviceHeap::memory() {
  Memory out;
  if (forked()) return out;
  const uint64_t total = device_->total_bytes();
  const uint64_t driver_free = device_->free_bytes(UINT64_MAX);
  const Locked guard(lock_);
  out.device = total;
  out.limit = std::max(std::min(quota_.limit(), total), quota_.held());
  const Sums live = usage_.live();
  const Sums peak = usage_.peak_live();
  out.live = live.requested;
  out.rounding = live.bytes - live.requested;
  out.pending = usage_.pending().bytes;
  leave_out_elsewhere(&out);
  // Pages on their way between places are idle too.
  out.cached = spare_.size() * page_bytes_ + reserved_bytes_;
  uint64_t holes = 0;
  for (auto& arena : arenas_) {
    arena->each_hole(kUnitBytes, [&](const Block* hole) {
      holes += hole->size;
      if (!arena->gives_pages())
        out.pools += hole->size;
      else if (arena->single_handle)
        out.cached += hole->size;
      else
        out.cached += arena->whole_pages(hole).bytes();
    });
  }
  // What is neither is free in pages partly in use, or in a busy block this instant.
  out.stranded = quota_.held() - out.live - out.rounding - out.pending - out.cached - out.pools;
  const uint64_t unheld = out.limit - quota_.held();
  const uint64_t guests = std::min(unheld, allocator_.guest_bytes(device_->id()));
  out.free = std::min({unheld - guests, driver_free, quota_.room()});
  out.context = std::min(unheld - out.free, device_->context_bytes() + quota_.native_since_start());
  out.others = unheld - out.free - out.context;
  out.reserved = quota_.held();
  out.peak_live = peak.requested;
  out.peak_allocated = peak.bytes;
  out.peak_reserved = peak_held_;
  out.failures = incidents_.failures;
  out.rescued = incidents_.rescued;
  out.unwound = incidents_.unwound;
  out.gave_up = incidents_.gave_up;
  out.rescued_bytes = incidents_.rescued_bytes;
  out.rescue_us = incidents_.rescue_us;
  out.driver_calls = device_->calls();
  return out;
}

// What lies in another tier is in use, but not of this device's memory.
void DeviceHeap::leave_out_elsewhere(Memory* out) const {
  for (const auto& [block, there] : spilled_) {
    for (const Piece& piece : there.pieces) {
      const uint64_t there_bytes = piece.gone ? 0 : piece.range.bytes();
      out->spilled += there_bytes;
      if (piece.tier == Tier::kNvme) out->spilled_nvme += there_bytes;
      if (piece.tier == Tier::kPeer) out->spilled_peer += there_bytes;
      const uint64_t asked_end = std::clamp(block->address + block->tag, piece.range.begin, piece.range.end);
      if (block->state == BlockState::kPending) {
        out->pending -= piece.range.bytes();
      } else {
        out->live -= asked_end - piece.range.begin;
        out->rounding -= piece.range.end - asked_end;
      }
    }
  }
}

bool DeviceHeap::peak_is_untold() {
  const Locked guard(lock_);
  return peak_held_ > sampled_peak_;
}

void DeviceHeap::reset_peaks() {
  if (forked()) return;
  if (peak_is_untold()) sample_memory();
  const Locked guard(lock_);
  usage_.reset_peaks();
  peak_held_ = quota_.held();
}

DeviceUsage DeviceHeap::usage() {
  if (forked()) return {};
  const Locked guard(lock_);
  return {.all = usage_.read(Usage::Of::kAll),
          .small = usage_.read(Usage::Of::kSmall),
          .large = usage_.read(Usage::Of::kLarge),
          .maps = maps_,
          .unmaps = unmaps_};
}

void DeviceHeap::reset_totals() {
  if (forked()) return;
  const Locked guard(lock_);
  usage_.reset_totals();
  maps_ = unmaps_ = 0;
}

void DeviceHeap::set_limit(uint64_t bytes) {
  if (forked()) return;
  uint64_t over = 0;
  {
    const Locked guard(lock_);
    quota_.set_limit(bytes);
    over = quota_.held() > quota_.limit() ? quota_.held() - quota_.limit() : 0;
  }
  if (over != 0) give_back(over);
}

std::string DeviceHeap::check_arena(Arena& arena, Arena::Recount* count) {
  Arena::Recount own;
  if (std::string broken = arena.check(&own); !broken.empty()) return broken;
  count->mapped += own.mapped;
  count->live += own.live;
  count->live_sizes += own.live_sizes;
  count->pending += own.pending;
  for (const Segment& segment : arena.segments()) {
    for (Block* block = segment.first; block != nullptr; block = block->next) {
      if (block->state != BlockState::kLive) continue;
      if (page_map_.find(block->address) != block) return "the page map misses a live block";
      if (((block->shared & kOtherStreams) != 0) != uses_.contains(block))
        return "a block's streams do not agree with its flag";
      if (((block->shared & kRegistered) != 0) != registered_.contains(block))
        return "a registered block does not agree with its flag";
      if (((block->shared & kSited) != 0) != holders_.contains(block))
        return "a block's place in the program does not agree with its flag";
      if (((block->shared & kSpilled) != 0) != spilled_.contains(block))
        return "a block in another tier does not agree with its flag";
      if (block->tag > block->size) return "a block is smaller than what was asked for";
    }
  }
  return "";
}

bool DeviceHeap::check_invariants(std::string* broken) {
  if (forked()) return true;
  const Locked guard(lock_);
  Arena::Recount count;
  for (auto& arena : arenas_) {
    *broken = check_arena(*arena, &count);
    if (!broken->empty()) return false;
  }
  *broken = check_exports();
  if (!broken->empty()) return false;
  uint64_t elsewhere = 0;
  for (const auto& [unused, there] : spilled_)
    for (const Piece& piece : there.pieces) elsewhere += piece.range.bytes();
  auto equal = [&](const char* what, uint64_t counted, uint64_t found) {
    if (counted == found) return true;
    *broken = std::string(what) + ": counted " + std::to_string(counted) + ", found " + std::to_string(found);
    return false;
  };
  return equal("live bytes", usage_.live().requested, count.live) &&
         equal("allocated bytes", usage_.live().bytes, count.live_sizes) &&
         equal("pending bytes", usage_.pending().bytes, count.pending) &&
         equal("bytes in other tiers", elsewhere_bytes_, elsewhere) &&
         equal("mapped bytes", mapped_bytes_, count.mapped) &&
         equal("held bytes", quota_.held(), mapped_bytes_ + spare_.size() * page_bytes_ + reserved_bytes_);
}

}  // namespace spillway
