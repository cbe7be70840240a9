// Where in the gaps of an arena a request goes: the place that needs the fewest new pages, in the tightest
// gap.
//
// A place's needs are sums over the blocks under it. They are differences of sums up to two addresses that
// only grow, so that a gap is passed once, however many places it has.
//
// Thread-safety: guarded by the heap's lock, as the arena is, which is borrowed. Units: bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "allocator/tiling/arena.h"
#include "allocator/tiling/gap.h"

namespace spillway {

// An address in a gap that only grows, and the sums over what lies before it.
class GapEdge {
 public:
  GapEdge(const Arena& arena, const Gap& gap, uint64_t kept_bytes)
      : arena_(&arena), last_(gap.last), kept_bytes_(kept_bytes) {
    enter(gap.first);
  }

  void move_to(uint64_t address) {
    address_ = address;
    while (block_ != nullptr && block_->end() <= address) {
      if (is_void()) voids_ += block_->size;
      idle_ += handles_.bytes();
      kept_ += is_kept();
      enter(block_ == last_ ? nullptr : block_->next);
    }
  }

  uint64_t void_bytes() const { return voids_ + (has_begun() && is_void() ? address_ - block_->address : 0); }
  // Whole idle handles: those that end at the address or before; those that begin before it.
  uint64_t idle_before() const {
    return idle_ + (is_inside_handles() ? arena_->handle_at(address_).begin : clamped()) - handles_.begin;
  }
  uint64_t idle_touched() const {
    return idle_ + (is_inside_handles() ? arena_->handle_at(address_ - 1).end : clamped()) - handles_.begin;
  }
  // Holes of `kept_bytes` and more: those that end at the address or before; those that begin before it.
  uint64_t kept_before() const { return kept_; }
  uint64_t kept_touched() const { return kept_ + (has_begun() && is_kept()); }

 private:
  void enter(const Block* block) {
    block_ = block;
    handles_ = block == nullptr || is_void() ? AddressRange{} : arena_->whole_handles(range_of(block));
  }
  bool is_void() const { return block_->state == BlockState::kVoid; }
  bool is_kept() const { return !is_void() && block_->size >= kept_bytes_; }
  bool has_begun() const { return block_ != nullptr && block_->address < address_; }
  bool is_inside_handles() const { return address_ > handles_.begin && address_ < handles_.end; }
  uint64_t clamped() const { return std::clamp(address_, handles_.begin, handles_.end); }

  const Arena* arena_;
  const Block* last_;
  uint64_t kept_bytes_;
  const Block* block_ = nullptr;  // the first that ends behind the address; null: none
  AddressRange handles_{};        // whole ones in it, if it is a hole
  uint64_t address_ = 0;
  uint64_t voids_ = 0, idle_ = 0, kept_ = 0;  // of the blocks before it
};

class PlaceChoice {
 public:
  // As Arena::plan has them.
  struct Wanted {
    uint64_t size = 0, have_bytes = 0, idle_bytes = 0, kept_bytes = UINT64_MAX;
  };
  PlaceChoice(const Arena& arena, uint64_t page_bytes, const Wanted& wanted)
      : arena_(arena), page_bytes_(page_bytes), wanted_(wanted) {}

  void look_in(const Gap& gap) {
    const AddressRange range = gap.range();
    const auto try_at = [&](Edges& edges, uint64_t address) {
      if (address >= range.begin && address + wanted_.size <= range.end) consider(gap, address, edges);
    };
    const GapEdge start(arena_, gap, wanted_.kept_bytes);
    Edges from_begin{start, start}, to_end = from_begin, at_last = from_begin;
    try_at(from_begin, range.begin);
    if (!gap.is_open()) try_at(at_last, range.end - wanted_.size);
    for (const Block* block = gap.first;; block = block->next) {
      try_at(from_begin, block->address);
      if (block->state == BlockState::kHole && block->end() >= wanted_.size)
        try_at(to_end, block->end() - wanted_.size);
      if (block == gap.last) break;
    }
  }
  // The first of those that are as good.
  const std::optional<Placement>& best() const { return best_; }

 private:
  struct Edges {
    GapEdge begin, end;
  };

  void consider(const Gap& gap, uint64_t address, Edges& edges) {
    const AddressRange place{address, address + wanted_.size};
    const AddressRange pages{place.begin / page_bytes_ * page_bytes_,
                             (place.end + page_bytes_ - 1) / page_bytes_ * page_bytes_};
    edges.begin.move_to(pages.begin);
    edges.end.move_to(pages.end);
    if (edges.end.kept_touched() > edges.begin.kept_before()) return;
    const uint64_t need = edges.end.void_bytes() - edges.begin.void_bytes();
    // An arena that keeps its pages has none among the idle bytes.
    const uint64_t idle = arena_.gives_pages() ? edges.end.idle_touched() - edges.begin.idle_before() : 0;
    const bool is_enough =
        need <= wanted_.have_bytes || need + idle <= wanted_.have_bytes + wanted_.idle_bytes;
    if (need != 0 && is_enough && is_better(need, width_of(gap)))
      take(place, pages, need, idle, width_of(gap));
  }

  // The open end is used last.
  static uint64_t width_of(const Gap& gap) { return gap.is_open() ? UINT64_MAX : gap.range().bytes(); }
  bool is_better(uint64_t need, uint64_t width) const {
    return !best_ || need < best_->need_bytes || (need == best_->need_bytes && width < best_width_);
  }
  // A page that the place begins or ends in is claimed whole if it is not mapped yet.
  void take(AddressRange place, AddressRange pages, uint64_t need, uint64_t idle, uint64_t width) {
    const AddressRange claim{arena_.page(pages.begin) == 0 ? pages.begin : place.begin,
                             arena_.page(pages.end - page_bytes_) == 0 ? pages.end : place.end};
    best_ = Placement{place.begin, claim, need, idle};
    best_width_ = width;
  }

  const Arena& arena_;
  const uint64_t page_bytes_;
  const Wanted wanted_;
  std::optional<Placement> best_;
  uint64_t best_width_ = 0;
};

}  // namespace spillway
