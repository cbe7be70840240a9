#include "libtorch/allocator/pools/segments.h"

#include <algorithm>

#include "libtorch/allocator/core.h"
#include "libtorch/allocator_config.h"

namespace spillway::libtorch {
namespace {

bool is(const spillway_block_info& block, BlockState state) {
  return block.state == static_cast<uint32_t>(state);
}

bool is_small(const spillway_block_info& block) {
  return block.bytes <= kSmallSize;
}

bool continues(const Segment& segment, const spillway_block_info& block) {
  const spillway_block_info& first = segment.blocks.front();
  if (first.segment != 0 || block.segment != 0) return first.segment == block.segment;
  if (segment.address + segment.bytes != block.address) return false;
  if (first.pool != block.pool || first.stream != block.stream) return false;
  return is(block, BlockState::kFree) || !segment.in_use() || segment.small() == is_small(block);
}

void add_block(void* context, const spillway_block_info* block) {
  auto& segments = *static_cast<std::vector<Segment>*>(context);
  if (segments.empty() || !continues(segments.back(), *block))
    segments.push_back({block->address, 0, block->pool, block->segment == 0, {}});
  segments.back().bytes += block->bytes;
  segments.back().blocks.push_back(*block);
}

}  // namespace

bool Segment::in_use() const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const auto& block) { return !is(block, BlockState::kFree); });
}

bool Segment::small() const {
  const auto used = std::find_if(blocks.begin(), blocks.end(),
                                 [](const auto& block) { return !is(block, BlockState::kFree); });
  return used == blocks.end() ? bytes <= kSmallBuffer : is_small(*used);
}

std::vector<Segment> segments_of(int device) {
  std::vector<Segment> segments;
  core().table->blocks(device, &add_block, &segments);
  return segments;
}

// Natively neither segments that expand nor what is free in them is counted.
Statistics::Layout layout_of(const std::vector<Segment>& segments, int device) {
  Statistics::Layout layout;
  for (const Segment& segment : segments) {
    Statistics::Physical& physical = segment.small() ? layout.small : layout.large;
    physical.reserved += segment.bytes;
    if (segment.expandable) continue;
    ++physical.segments;
    for (const spillway_block_info& block : segment.blocks) {
      if (segment.blocks.size() == 1 || !is(block, BlockState::kFree)) continue;
      ++physical.split_blocks;
      physical.split_bytes += block.bytes;
    }
  }
  const spillway_memory memory = memory_of(device);
  layout.reserved = memory.reserved;
  layout.peak_reserved = memory.peak_reserved;
  layout.failures = memory.failures;
  return layout;
}

}  // namespace spillway::libtorch
