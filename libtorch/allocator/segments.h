// The core's blocks of one device, grouped into runs of adjacent addresses: what PyTorch calls segments.
//
// Thread-safety: a value, taken from the core at one moment. Units: bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "libtorch/allocator/statistics.h"
#include "spillway/core.h"

namespace spillway::libtorch {

enum class BlockState : uint32_t { kFree = 0, kLive = 1, kPending = 2 };

struct Segment {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t pool = 0;  // the core's number
  std::vector<spillway_block_info> blocks;
  bool in_use() const;
};

std::vector<Segment> segments_of(int device);

// What the statistics need to know of them.
Statistics::Layout layout_of(const std::vector<Segment>& segments, int device);

}  // namespace spillway::libtorch
