// Which place each allocation of a trace came from where only a sample of them has one.
//
// Thread-safety: pure function. Ownership: plain values. Errors: none; what no sampled block is like stays
// without a place.
#pragma once
#include <cstddef>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// An allocation whose place was looked for. `blocks`: of its size, that it stands for.
struct SampledAllocation {
  size_t event = 0;
  double blocks = 1;
};

// The places of all other allocations, and of what frees them, by the sampled ones of their size: those of
// blocks that are still there (`lives`, by event) by such blocks if there are any, since what is kept and
// what passes come from different lines.
void place_the_others(const std::vector<SampledAllocation>& sampled, const std::vector<bool>& lives,
                      DeviceHistory* device);

}  // namespace spillway::tools
