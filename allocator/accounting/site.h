// A place of the program, and what it holds of a device.
#pragma once
#include <cstdint>

namespace spillway {

struct SiteHolding {
  uint64_t site = 0;          // the number of its text in the trace
  uint64_t bytes = 0;         // requested; of blocks whose place was not taken, its share by their sizes
  uint64_t blocks = 0;        // likewise
  uint64_t oldest_order = 0;  // place of the oldest sampled one's allocation in the order of all records
};

}  // namespace spillway
