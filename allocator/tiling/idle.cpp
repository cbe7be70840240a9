// Idle pages: which there are, and when nothing on the device can touch them any more.
#include <algorithm>
#include <optional>

#include "allocator/tiling/tiling.h"

namespace spillway {
namespace {

// An allocation of the driver's has no pages that could serve others.
bool gives_idle_pages(const Arena& arena) {
  return arena.gives_pages() && arena.has_pages();
}

}  // namespace

// The longest run of whole handles in a hole of which none is pinned: others know their memory, whatever lies
// there.
AddressRange movable_handles(const Arena& arena, const Block* hole, const Pins& pins) {
  const AddressRange whole = arena.whole_handles(range_of(hole));
  if (!pins.cover(whole.begin, whole.bytes())) return whole;
  AddressRange longest{whole.begin, whole.begin}, run = longest;
  for (uint64_t at = whole.begin; at < whole.end;) {
    const AddressRange handle = arena.handle_at(at);
    at = handle.end;
    run = pins.cover(handle.begin, handle.bytes()) ? AddressRange{at, at} : AddressRange{run.begin, at};
    if (run.bytes() > longest.bytes()) longest = run;
  }
  return longest;
}

IdleBytes Tiling::idle_bytes() const {
  IdleBytes idle;
  const Pins pins = pinned();
  for (auto& arena : arenas_) {
    if (!gives_idle_pages(*arena)) continue;
    arena->each_hole(page_bytes_, [&](const Block* hole) {
      const uint64_t bytes = movable_handles(*arena, hole, pins).bytes();
      idle.all += bytes;
      if (hole->tag <= arena->drained_order) idle.drained += bytes;
    });
  }
  return idle;
}

std::vector<Tiling::IdleHole> Tiling::idle_holes(uint64_t pool) const {
  std::vector<IdleHole> holes;
  const Pins pins = pinned();
  for (auto& arena : arenas_) {
    if (!gives_idle_pages(*arena) || (pool != kEveryPool && arena->pool() != pool)) continue;
    arena->each_hole(page_bytes_, [&](Block* hole) {
      const AddressRange whole = movable_handles(*arena, hole, pins);
      if (whole.bytes() != 0 && hole->tag <= arena->drained_order)
        holes.push_back({arena.get(), hole, whole});
    });
  }
  std::stable_sort(holes.begin(), holes.end(),
                   [](const IdleHole& a, const IdleHole& b) { return a.whole.bytes() > b.whole.bytes(); });
  return holes;
}

// The smallest handle at the end of a hole, where all have more than is asked.
std::optional<IdleRange> Tiling::take_larger_handle(uint64_t pool) {
  std::optional<IdleRange> found;
  Block* from = nullptr;
  for (const IdleHole& idle : idle_holes(pool)) {
    const AddressRange handle = last_covering(*idle.arena, idle.whole, page_bytes_);
    if (found && handle.bytes() >= found->range.bytes()) continue;
    found = IdleRange{idle.arena, nullptr, handle};
    from = idle.hole;
  }
  if (found) found->busy = found->arena->claim_pages(from, found->range);
  return found;
}

std::vector<IdleRange> Tiling::take_idle(uint64_t bytes, uint64_t pool, Round round) {
  bytes = (std::min(bytes, UINT64_MAX / 2) + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  std::vector<IdleRange> taken;
  for (const IdleHole& idle : bytes == 0 ? std::vector<IdleHole>{} : idle_holes(pool)) {
    const AddressRange range = last_within(*idle.arena, idle.whole, bytes);
    if (range.bytes() == 0) continue;
    taken.push_back({idle.arena, idle.arena->claim_pages(idle.hole, range), range});
    bytes -= range.bytes();
    if (bytes == 0) break;
  }
  while (bytes != 0 && round == Round::kUp) {
    const std::optional<IdleRange> larger = take_larger_handle(pool);
    if (!larger) break;
    taken.push_back(*larger);
    bytes -= std::min(bytes, larger->range.bytes());
  }
  return taken;
}

Arena* Tiling::most_undrained(const std::vector<Arena*>& skipped) const {
  Arena* found = nullptr;
  uint64_t most = 0;
  const Pins pins = pinned();
  for (auto& arena : arenas_) {
    if (!gives_idle_pages(*arena) || std::find(skipped.begin(), skipped.end(), arena.get()) != skipped.end())
      continue;
    uint64_t bytes = 0;
    arena->each_hole(page_bytes_, [&](const Block* hole) {
      if (hole->tag > arena->drained_order) bytes += movable_handles(*arena, hole, pins).bytes();
    });
    if (bytes <= most) continue;
    most = bytes;
    found = arena.get();
  }
  return found;
}

void Tiling::drained(std::optional<StreamId> stream, uint64_t order) {
  for (auto& arena : arenas_) {
    const bool concerned = stream ? arena->pool() == 0 && arena->stream() == *stream : arena->gives_pages();
    if (concerned) arena->drained_order = std::max(arena->drained_order, order);
  }
}

void Tiling::all_is_drained(uint64_t order) {
  for (const auto& arena : arenas_)
    if (arena->gives_pages()) arena->drained_order = std::max(arena->drained_order, order);
}

std::vector<StreamId> Tiling::streams() const {
  std::vector<StreamId> streams;
  for (const auto& arena : arenas_)
    if (arena->may_ask) streams.push_back(arena->stream());
  return streams;
}

bool Tiling::uses(StreamId stream) const {
  return std::any_of(arenas_.begin(), arenas_.end(),
                     [&](const auto& arena) { return arena->stream() == stream; });
}

void Tiling::stream_ends(StreamId stream, bool over, uint64_t order) {
  for (const auto& arena : arenas_) {
    if (arena->stream() != stream) continue;
    if (over && arena->pool() == 0) arena->drained_order = std::max(arena->drained_order, order);
    arena->end_stream(order);
  }
  if (last_stream_ == stream) last_arenas_[0] = last_arenas_[1] = nullptr;
}

}  // namespace spillway
