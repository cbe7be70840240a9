// Idle pages: which there are, and when nothing on the device can touch them any more.
#include <algorithm>

#include "allocator/tiling/tiling.h"

namespace spillway {
namespace {

// A single handle has no pages that could serve others.
bool gives_idle_pages(const Arena& arena) {
  return arena.gives_pages() && !arena.single_handle;
}

}  // namespace

IdleBytes Tiling::idle_bytes() const {
  IdleBytes idle;
  for (auto& arena : arenas_) {
    if (!gives_idle_pages(*arena)) continue;
    arena->each_hole(page_bytes_, [&](const Block* hole) {
      const uint64_t bytes = arena->whole_pages(hole).bytes();
      idle.all += bytes;
      if (hole->tag <= arena->drained_order) idle.drained += bytes;
    });
  }
  return idle;
}

std::vector<IdleRange> Tiling::take_idle(uint64_t bytes, uint64_t pool) {
  struct Candidate {
    uint64_t bytes;
    Arena* arena;
    Block* hole;
  };
  std::vector<Candidate> candidates;
  for (auto& arena : arenas_) {
    if (!gives_idle_pages(*arena) || (pool != kEveryPool && arena->pool() != pool)) continue;
    arena->each_hole(page_bytes_, [&](Block* hole) {
      const uint64_t whole = arena->whole_pages(hole).bytes();
      if (whole != 0 && hole->tag <= arena->drained_order) candidates.push_back({whole, arena.get(), hole});
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
    victims.push_back({candidate.arena, candidate.arena->claim_pages(candidate.hole, range), range});
    bytes -= std::min(bytes, take);
  }
  return victims;
}

Arena* Tiling::most_undrained(const std::vector<Arena*>& skipped) const {
  Arena* found = nullptr;
  uint64_t most = 0;
  for (auto& arena : arenas_) {
    if (!gives_idle_pages(*arena) || std::find(skipped.begin(), skipped.end(), arena.get()) != skipped.end())
      continue;
    uint64_t bytes = 0;
    arena->each_hole(page_bytes_, [&](const Block* hole) {
      if (hole->tag > arena->drained_order) bytes += arena->whole_pages(hole).bytes();
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
