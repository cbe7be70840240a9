#include "libtorch/allocator/segments.h"

#include <algorithm>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

bool is(const spillway_block_info& block, BlockState state) {
  return block.state == static_cast<uint32_t>(state);
}

void add_block(void* context, const spillway_block_info* block) {
  auto& segments = *static_cast<std::vector<Segment>*>(context);
  if (segments.empty() || segments.back().address + segments.back().bytes != block->address ||
      segments.back().pool != block->pool || segments.back().blocks.front().stream != block->stream) {
    segments.push_back({block->address, 0, block->pool, {}});
  }
  segments.back().bytes += block->bytes;
  segments.back().blocks.push_back(*block);
}

}  // namespace

bool Segment::in_use() const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const auto& block) { return !is(block, BlockState::kFree); });
}

std::vector<Segment> segments_of(int device) {
  std::vector<Segment> segments;
  core().table->blocks(device, &add_block, &segments);
  return segments;
}

Statistics::Layout layout_of(const std::vector<Segment>& segments, int device) {
  Statistics::Layout layout;
  for (const Segment& segment : segments) {
    ++layout.segments;
    const bool in_use = segment.in_use();
    for (const spillway_block_info& block : segment.blocks) {
      if (!in_use || !is(block, BlockState::kFree)) continue;
      ++layout.split_blocks;
      layout.split_bytes += block.bytes;
    }
  }
  const spillway_memory memory = memory_of(device);
  layout.reserved = memory.reserved;
  layout.peak_reserved = memory.peak_reserved;
  layout.failures = memory.failures;
  return layout;
}

}  // namespace spillway::libtorch
