// Who holds what of the allocator's memory that a request may not use: private pools, such as those of CUDA
// graphs, and memory that was allocated for another stream.
//
// Thread-safety: pure functions. Ownership: texts are their own. Units: bytes.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/history/moment.h"
#include "tools/spillway/history/names.h"

namespace spillway::tools {

// What a line has allocated in a pool up to the moment, freed again or not.
struct PoolPlace {
  StackName place;
  uint64_t bytes = 0, blocks = 0;
};

struct PoolHolding {
  PoolId pool;
  uint64_t stream = 0;
  uint64_t held = 0, in_use = 0;  // of the driver, and of that by blocks
  std::vector<PoolPlace> places;  // most bytes first
};

// Those that hold a sixteenth of the allocator's memory or more, largest first. `asker`: the request's own.
std::vector<PoolHolding> other_pools(const DeviceHistory& device, const Moment& moment,
                                     const PoolAndStream& asker, StackNames* names);

// "default pool", "pool 3", "pool (0, 3)": as the file counts them.
std::string pool_text(PoolId pool);

}  // namespace spillway::tools
