// A place of the program, and what it holds of a device.
#pragma once
#include <cstdint>

namespace spillway {

struct SiteHolding {
  uint64_t site = 0;          // the number of its text in the trace
  uint64_t bytes = 0;         // estimated from the blocks that were sampled
  uint64_t blocks = 0;        // that were sampled
  uint64_t oldest_order = 0;  // place of the oldest one's allocation in the order of all records
};

}  // namespace spillway
