// How long each block and each piece of the allocator's memory was there, over a whole history: what charts
// of time and maps of any moment are drawn from. Found backwards, as moment.h finds one moment.
//
// A moment has a number: what had happened are the events before it. There is one more than events.
//
// Thread-safety: pure functions. Ownership: plain values. Units: bytes. Errors: an event that does not go
// with the blocks of the file is passed over, as moment.h does.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// It was there in the moments [from, until); in those from `pending` on it had been freed, but other streams
// might still use it.
struct BlockLife {
  uint64_t address = 0, held = 0, requested = 0;  // `held`: as the allocator rounded it
  StackId stack = 0;
  uint64_t from = 0, pending = 0, until = 0;
};

// A segment, or the part of one that was mapped or unmapped at once.
struct SegmentLife {
  uint64_t address = 0, size = 0, stream = 0;
  PoolId pool;
  uint64_t from = 0, until = 0;
};

struct Lives {
  uint64_t moments = 1;
  std::vector<BlockLife> blocks;  // in the order of their allocation; those from before the history first
  std::vector<SegmentLife> segments;
};

Lives lives_of(const DeviceHistory& device);

}  // namespace spillway::tools
