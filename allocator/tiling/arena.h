// An arena: the address space of one (pool, stream, size kind) and the blocks in it. It plans and changes the
// tiling; the pages behind it are mapped and unmapped by the heap, while the blocks concerned are busy.
//
// Thread-safety: guarded by the heap's lock. Ownership: blocks come from the heap's slab. Invariants: blocks
// tile their segment; no two neighbours are both holes or both voids; voids begin and end on pages; a page is
// mapped unless it lies in a void.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/tiling/bins.h"
#include "allocator/tiling/block.h"
#include "allocator/tiling/pool_memory.h"
#include "allocator/tiling/stream_knowledge.h"
#include "allocator/units.h"
#include "driver/mapping.h"

namespace spillway {

struct AddressRange {
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
};

// In place of a page's handle where a block's memory lies in another tier.
inline constexpr CUmemGenericAllocationHandle kPageElsewhere = ~CUmemGenericAllocationHandle{0};

// And where it lies in a file: nothing is mapped then.
inline constexpr CUmemGenericAllocationHandle kPageStored = kPageElsewhere - 1;

inline bool is_page(CUmemGenericAllocationHandle handle) {
  return handle != 0 && handle != kPageElsewhere && handle != kPageStored;
}

// A reserved address range.
struct Segment {
  AddressRange range;
  Block* first = nullptr;
  AddressRange given;  // as it came, where it is an allocation: blocks begin on whole units of it
  // Handle of each page, 0 where none is mapped; grows up to the highest page ever mapped. Neighbours with
  // one handle are one allocation of the driver's, which is mapped and unmapped whole.
  std::vector<CUmemGenericAllocationHandle> pages;
};

// Where a request that fits in no hole could go.
struct Placement {
  uint64_t address = 0;
  AddressRange claim;       // the request, widened to whole pages where there are none yet
  uint64_t need_bytes = 0;  // pages to map
  uint64_t idle_bytes = 0;  // whole idle pages under it, of those that the arena gives
};

// What an arena's blocks hold, added up anew.
struct Recount {
  uint64_t mapped = 0, live = 0, live_sizes = 0, pending = 0, holes = 0, hole_bytes = 0;
};

class Arena {
 public:
  Arena(uint16_t index, StreamId stream, uint64_t pool, bool small, PoolMemory memory, uint64_t page_bytes,
        BlockSlab& slab)
      : memory(memory),
        index_(index),
        stream_(stream),
        pool_(pool),
        small_(small),
        page_bytes_(page_bytes),
        slab_(slab) {}

  uint16_t index() const { return index_; }
  StreamId stream() const { return stream_; }
  // Its stream was destroyed at this place in the order: no request comes any more, and what was queued on it
  // is over when everything on the device is.
  void end_stream(uint64_t order);
  // It serves another stream from now on, if nothing that was queued on its own can be under way any more.
  bool serve_stream(StreamId stream);
  uint64_t pool() const { return pool_; }
  bool small() const { return small_; }
  // Whether idle pages may leave it. A private pool keeps its own until it is released: a graph that was
  // captured may use them at any time.
  bool gives_pages() const { return pool_ == 0 || (pool_flags & kPoolReleased) != 0; }
  // Nothing in it is live, pending, on its way or mapped.
  bool empty() const;
  // An empty arena serves another stream and pool from now on: address space is not given back.
  void rename(StreamId stream, uint64_t pool, uint32_t flags);

  Block* best(uint64_t size) const { return bins_.best(size); }
  Block* largest_hole() const { return bins_.largest(); }
  template <typename Visit>
  void each_hole(uint64_t size, Visit visit) const {
    bins_.each(size, visit);
  }

  // Gives the first `size` bytes of `hole` to the program.
  Block* take(Block* hole, uint64_t size, uint64_t requested) {
    bins_.remove(hole);
    if (hole->size != size && memory != PoolMemory::kWholeAllocations) split(hole, size);
    hole->state = BlockState::kLive;
    hole->tag = requested;
    return hole;
  }

  // The hole that [address, address + size) lies in, or null.
  Block* hole_at(uint64_t address, uint64_t size);
  // Gives that part of `hole` to the program.
  Block* take_at(Block* hole, uint64_t address, uint64_t size, uint64_t requested);

  // Makes a block that is in no list a hole and merges it with its neighbours.
  Block* put_hole(Block* block, uint64_t freed_order);

  // False when the arena has as many segments as a block can name.
  [[nodiscard]] bool add_segment(AddressRange range);
  const std::vector<Segment>& segments() const { return segments_; }
  Segment* segment_of(uint64_t address);
  const Segment* segment_of(uint64_t address) const;
  bool has_gap(uint64_t size) const;

  // Where a request of `size` needs the fewest new pages (at least one: what fits in a hole is `best`'s), if
  // `have_bytes` of pages suffice for it together with the `idle_bytes` of whole idle pages (of all arenas)
  // that do not lie under the place itself. Holes of `kept_bytes` and more are left alone.
  std::optional<Placement> plan(uint64_t size, uint64_t have_bytes, uint64_t idle_bytes,
                                uint64_t kept_bytes = UINT64_MAX) const;
  // The largest size that `best` or `plan` could place with `have_bytes` of pages and nothing idle.
  uint64_t largest(uint64_t have_bytes) const;
  // Takes the place out as one busy block; `voids` are the parts of it without pages.
  Block* claim(const Placement& placement, std::vector<AddressRange>* voids);
  // The busy block's pages are all mapped: gives [address, address + size) to the program, the rest becomes
  // holes.
  Block* finish(Block* busy, uint64_t address, uint64_t size, uint64_t requested);
  // The busy block goes back to what it was: voids where there are no pages, holes elsewhere. On pages whose
  // memory lies in another tier, because others need it, it stays busy.
  void restore(Block* busy, uint64_t order);

  // allocations.cpp: an allocation becomes a segment, and its beginning a live block. One that is idle whole
  // is taken out by `claim_pages`, and forgotten or put back by `put_hole`. Both by what was given.
  Block* add_allocation(AddressRange given, uint64_t size, uint64_t requested);
  void forget_allocation(Block* busy);

  // Takes `range` inside `hole` out as a busy block.
  Block* claim_pages(Block* hole, AddressRange range);

  // handles.cpp: what lies behind addresses
  void set_pages(AddressRange range, CUmemGenericAllocationHandle handle);
  CUmemGenericAllocationHandle page(uint64_t address) const;
  // Of the handle that the page at `address` belongs to; of the page alone where it is in none.
  AddressRange handle_at(uint64_t address) const;
  // The whole handles inside a range.
  AddressRange whole_handles(AddressRange range) const;

  // "" or the first broken invariant; adds up what the blocks hold.
  std::string check(Recount* count) const;

  uint64_t drained_order = 0;  // work queued before this place in the order is done
  uint32_t pool_flags = 0;     // PoolFlags
  bool may_ask = true;         // the driver, about its stream
  // Without pages each segment is an allocation, of the driver's or of the pool's own source, and has no
  // voids.
  const PoolMemory memory;
  bool has_pages() const { return memory == PoolMemory::kPages; }

 private:
  void split(Block* hole, uint64_t size);
  Block* carve(Block* block, AddressRange range);
  void detach(Block* block);
  void attach(Block* block);
  Block* absorb_next(Block* block);
  Block* put(Block* block, BlockState state, uint64_t tag);
  void insert_void(Block* block);
  void remove_void(Block* block);
  std::string check_segment(const Segment& segment, Recount* count) const;

  uint16_t index_;
  StreamId stream_;
  uint64_t stream_end_ = 0;
  uint64_t pool_;
  bool small_;
  uint64_t page_bytes_;
  BlockSlab& slab_;
  Bins bins_;
  Block* voids_ = nullptr;
  std::vector<Segment> segments_;
};

// The whole units in it.
inline AddressRange units_in(AddressRange range) {
  return {(range.begin + kUnitBytes - 1) / kUnitBytes * kUnitBytes, range.end / kUnitBytes * kUnitBytes};
}
// Whether its segments come from a source of the pool's own.
inline bool has_own_source(const Arena& arena) {
  return (arena.pool_flags & kPoolOwnSource) != 0;
}
inline AddressRange range_of(const Block* block) {
  return {block->address, block->end()};
}
// As it was given, by its first block.
AddressRange allocation_of(const Arena& arena, const Block* first);
// The block is all of its segment.
inline bool is_alone(const Block* block) {
  return block->previous == nullptr && block->next == nullptr;
}
// Of that state, with bytes in the range; `near` is a block that has some there.
std::vector<Block*> blocks_in(AddressRange range, Block* near, BlockState state);
// Arena::restore of all busy blocks in a range that moved whole: none is another's, because free memory there
// was taken out with the move.
void restore_in(Arena& arena, AddressRange range, Block* near, uint64_t order);
// One behind the other from `address` on.
void set_pages(Arena& arena, uint64_t address, std::span<const driver::Page> pages);
// Of a range of whole handles.
std::vector<driver::Page> handles_in(const Arena& arena, AddressRange range);
// The last handles of a range of whole ones in `arena`: at least `bytes`, where it has so many; at most
// `bytes`.
AddressRange last_covering(const Arena& arena, AddressRange whole, uint64_t bytes);
AddressRange last_within(const Arena& arena, AddressRange whole, uint64_t bytes);

}  // namespace spillway
