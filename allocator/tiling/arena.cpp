#include "allocator/tiling/arena.h"

#include <algorithm>

#include "allocator/tiling/gap.h"
#include "allocator/tiling/place_choice.h"

namespace spillway {

void Arena::insert_void(Block* block) {
  block->bin_previous = nullptr;
  block->bin_next = voids_;
  if (voids_ != nullptr) voids_->bin_previous = block;
  voids_ = block;
}

void Arena::remove_void(Block* block) {
  if (block->bin_next != nullptr) block->bin_next->bin_previous = block->bin_previous;
  if (block->bin_previous != nullptr)
    block->bin_previous->bin_next = block->bin_next;
  else
    voids_ = block->bin_next;
}

void Arena::detach(Block* block) {
  if (block->state == BlockState::kHole)
    bins_.remove(block);
  else if (block->state == BlockState::kVoid)
    remove_void(block);
}

void Arena::attach(Block* block) {
  if (block->state == BlockState::kHole)
    bins_.insert(block);
  else if (block->state == BlockState::kVoid)
    insert_void(block);
}

// Cuts `block`, which is in no list, behind `size`; the rest keeps its state and is listed.
void Arena::split(Block* block, uint64_t size) {
  Block* rest = slab_.take();
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->tag = block->tag;
  rest->state = block->state;
  rest->arena = index_;
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  attach(rest);
}

// Cuts `block` (a hole or void, listed) down to `range`; what is left of it on either side stays what it was.
Block* Arena::carve(Block* block, AddressRange range) {
  detach(block);
  if (range.begin > block->address) {
    split(block, range.begin - block->address);
    Block* left = block;
    block = left->next;
    detach(block);
    attach(left);
  }
  if (range.end < block->end()) split(block, range.end - block->address);
  return block;
}

Block* Arena::hole_at(uint64_t address, uint64_t size) {
  const Segment* segment = segment_of(address);
  if (segment == nullptr) return nullptr;
  for (Block* block = segment->first; block != nullptr && block->address <= address; block = block->next)
    if (block->state == BlockState::kHole && block->end() >= address + size) return block;
  return nullptr;
}

Block* Arena::take_at(Block* hole, uint64_t address, uint64_t size, uint64_t requested) {
  Block* block = carve(hole, {address, address + size});
  block->state = BlockState::kLive;
  block->tag = requested;
  return block;
}

Block* Arena::absorb_next(Block* block) {
  Block* next = block->next;
  block->size += next->size;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  if (block->previous == nullptr && has_pages()) segments_[block->segment].first = block;
  slab_.put(next);
  return block;
}

Block* Arena::put(Block* block, BlockState state, uint64_t tag) {
  block->state = state;
  if (Block* left = block->previous; left != nullptr && left->state == state) {
    detach(left);
    tag = std::max(tag, left->tag);
    block = absorb_next(left);
  }
  if (Block* right = block->next; right != nullptr && right->state == state) {
    detach(right);
    tag = std::max(tag, right->tag);
    absorb_next(block);
  }
  block->tag = tag;
  attach(block);
  return block;
}

Block* Arena::put_hole(Block* block, uint64_t freed_order) {
  return put(block, BlockState::kHole, freed_order);
}

bool Arena::add_segment(AddressRange range) {
  if (segments_.size() == UINT8_MAX) return false;
  Block* block = slab_.take_whole(range.begin, range.bytes(), index_);
  block->segment = static_cast<uint8_t>(segments_.size());
  block->state = BlockState::kVoid;
  insert_void(block);
  segments_.push_back({range, block, {}, {}});
  return true;
}

bool Arena::empty() const {
  return std::all_of(segments_.begin(), segments_.end(), [](const Segment& segment) {
    return segment.first->state == BlockState::kVoid && segment.first->next == nullptr;
  });
}

void Arena::rename(StreamId stream, uint64_t pool, uint32_t flags) {
  stream_ = stream;
  pool_ = pool;
  pool_flags = flags;
  drained_order = 0;
}

void Arena::end_stream(uint64_t order) {
  stream_ = kStreamGone;
  stream_end_ = order;
  may_ask = false;
}

bool Arena::serve_stream(StreamId stream) {
  if (stream_ != kStreamGone || drained_order < stream_end_) return false;
  stream_ = stream;
  return true;
}

Segment* Arena::segment_of(uint64_t address) {
  for (Segment& segment : segments_)
    if (address >= segment.range.begin && address < segment.range.end) return &segment;
  return nullptr;
}

const Segment* Arena::segment_of(uint64_t address) const {
  return const_cast<Arena*>(this)->segment_of(address);
}

bool Arena::has_gap(uint64_t size) const {
  for (const Block* block = voids_; block != nullptr; block = block->bin_next)
    if (const std::optional<Gap> gap = gap_from(block); gap && gap->range().bytes() >= size) return true;
  return false;
}

std::optional<Placement> Arena::plan(uint64_t size, uint64_t have_bytes, uint64_t idle_bytes,
                                     uint64_t kept_bytes) const {
  PlaceChoice choice(*this, page_bytes_, {size, have_bytes, idle_bytes, kept_bytes});
  for (const Block* block = voids_; block != nullptr; block = block->bin_next)
    if (const std::optional<Gap> gap = gap_from(block); gap && gap->range().bytes() >= size)
      choice.look_in(*gap);
  return choice.best();
}

uint64_t Arena::largest(uint64_t have_bytes) const {
  const Block* hole = bins_.largest();
  uint64_t bytes = hole == nullptr ? 0 : hole->size;
  have_bytes = have_bytes / page_bytes_ * page_bytes_;
  for (const Block* block = voids_; block != nullptr; block = block->bin_next)
    if (const std::optional<Gap> gap = gap_from(block))
      bytes = std::max(bytes, longest_place(*gap, have_bytes));
  return bytes;
}

Block* Arena::claim(const Placement& placement, std::vector<AddressRange>* voids) {
  const AddressRange& range = placement.claim;
  Block* block = voids_;  // a placement needs pages, so one of the voids lies in it
  while (block->address >= range.end || block->end() <= range.begin) block = block->bin_next;
  while (block->address > range.begin) block = block->previous;
  Block* busy = nullptr;
  while (true) {
    block = carve(block, {std::max(range.begin, block->address), std::min(range.end, block->end())});
    if (block->state == BlockState::kVoid) voids->push_back({block->address, block->end()});
    const bool done = block->end() == range.end;
    block->state = BlockState::kBusy;
    busy = busy == nullptr ? block : absorb_next(busy);
    if (done) return busy;
    block = busy->next;
  }
}

Block* Arena::finish(Block* busy, uint64_t address, uint64_t size, uint64_t requested) {
  Block* block = busy;
  busy->tag = 0;
  if (address > busy->address) {
    split(busy, address - busy->address);  // the rest is busy too, so in no list
    block = busy->next;
  }
  if (address + size < block->end()) {
    split(block, address + size - block->address);
    put_hole(block->next, 0);
  }
  block->state = BlockState::kLive;
  block->tag = requested;
  if (block != busy) put_hole(busy, 0);
  return block;
}

void Arena::restore(Block* busy, uint64_t order) {
  while (busy != nullptr) {
    const uint64_t page_start = busy->address / page_bytes_ * page_bytes_;
    const bool is_void = page(page_start) == 0, elsewhere = page(page_start) == kPageElsewhere;
    uint64_t end = page_start + page_bytes_;
    while (end < busy->end() && !elsewhere && page(end) != kPageElsewhere && (page(end) == 0) == is_void)
      end += page_bytes_;
    Block* rest = nullptr;
    if (end < busy->end()) {
      split(busy, end - busy->address);
      rest = busy->next;
    }
    if (elsewhere)
      busy->state = BlockState::kBusy;
    else
      put(busy, is_void ? BlockState::kVoid : BlockState::kHole, is_void ? 0 : order);
    busy = rest;
  }
}

std::vector<Block*> blocks_in(AddressRange range, Block* near, BlockState state) {
  std::vector<Block*> blocks;
  const auto collect = [&](Block* block, Block* Block::* step) {
    for (; block != nullptr && block->address < range.end && block->end() > range.begin; block = block->*step)
      if (block->state == state) blocks.push_back(block);
  };
  collect(near, &Block::previous);
  collect(near->next, &Block::next);
  return blocks;
}

void restore_in(Arena& arena, AddressRange range, Block* near, uint64_t order) {
  for (Block* block : blocks_in(range, near, BlockState::kBusy)) arena.restore(block, order);
}

Block* Arena::claim_pages(Block* hole, AddressRange range) {
  Block* block = carve(hole, range);
  block->state = BlockState::kBusy;
  return block;
}

std::string Arena::check(Recount* count) const {
  for (const Segment& segment : segments_)
    if (std::string broken = check_segment(segment, count); !broken.empty()) return broken;
  uint64_t listed = 0, bytes = 0;
  std::string broken;
  bins_.each(kUnitBytes, [&](const Block* hole) {
    ++listed;
    bytes += hole->size;
    if (hole->state != BlockState::kHole || hole->arena != index_ || Bins::bin_of(hole->size) != hole->bin)
      broken = "a bin lists a block that is no hole of its size";
  });
  if (!broken.empty()) return broken;
  if (listed != count->holes || bytes != count->hole_bytes)
    return "the bins do not list exactly the arena's holes";
  return "";
}

std::string Arena::check_segment(const Segment& segment, Recount* count) const {
  uint64_t at = segment.range.begin;
  auto mapped = [&](uint64_t address) {
    const uint64_t index = (address - segment.range.begin) / page_bytes_;
    return index < segment.pages.size() && segment.pages[index] != 0;
  };
  if (!has_pages()) count->mapped += segment.given.bytes();
  for (CUmemGenericAllocationHandle handle : segment.pages)
    count->mapped += is_page(handle) ? page_bytes_ : 0;
  const Block* previous = nullptr;
  for (const Block* block = segment.first; block != nullptr; previous = block, block = block->next) {
    if (block->address != at || block->size == 0 || block->previous != previous || block->arena != index_)
      return "blocks do not tile their segment at " + std::to_string(block->address);
    at = block->end();
    if (memory == PoolMemory::kWholeAllocations && (previous != nullptr || at != segment.range.end))
      return "an allocation is not one block at " + std::to_string(block->address);
    if (!has_pages() && block->state == BlockState::kVoid)
      return "an allocation has a void at " + std::to_string(block->address);
    if (previous != nullptr && is_free(block) && previous->state == block->state)
      return "two neighbouring holes or voids were not merged at " + std::to_string(block->address);
    if (block->state == BlockState::kBusy) continue;
    const bool is_void = block->state == BlockState::kVoid;
    if (is_void && (block->address % page_bytes_ != 0 || block->size % page_bytes_ != 0))
      return "a void does not end on a page at " + std::to_string(block->address);
    const uint64_t last =
        is_void ? std::min(block->end(), segment.range.begin + segment.pages.size() * page_bytes_)
                : block->end();
    for (uint64_t at = block->address / page_bytes_ * page_bytes_; at < last && has_pages();
         at += page_bytes_) {
      if (mapped(at) == is_void)
        return "pages do not agree with the block at " + std::to_string(block->address);
      if (block->state == BlockState::kHole && !is_page(page(at)))
        return "a free block lies on a page in another tier at " + std::to_string(block->address);
    }
    if (block->state == BlockState::kHole) {
      ++count->holes;
      count->hole_bytes += block->size;
    } else if (block->state == BlockState::kLive) {
      count->live += block->tag;
      count->live_sizes += block->size;
    } else if (block->state == BlockState::kPending) {
      count->pending += block->size;
    }
  }
  return at == segment.range.end ? "" : "blocks do not reach their segment's end";
}

}  // namespace spillway
