// The core's blocks of one device, grouped into runs of adjacent addresses of one of PyTorch's two kinds:
// what it calls segments.
//
// Thread-safety: a value, taken from the core at one moment. Units: bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "libtorch/allocator/history/statistics.h"
#include "strategies/core/core.h"

namespace spillway::libtorch {

enum class BlockState : uint32_t { kFree = 0, kLive = 1, kPending = 2 };

struct Segment {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t pool = 0;        // the core's number
  bool expandable = false;  // of pages; else one allocation, of the driver's or of the pool's own allocator
  std::vector<spillway_block_info> blocks;
  bool in_use() const;
  // Whether its bytes count to PyTorch's small pool, as its blocks do.
  bool small() const;
};

std::vector<Segment> segments_of(int device);

// What the statistics need to know of them.
Statistics::Layout layout_of(const std::vector<Segment>& segments, int device);

}  // namespace spillway::libtorch
