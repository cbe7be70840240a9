// Where the allocator's free memory comes closest to one piece that a request fits into: what lies in
// between.
//
// Thread-safety: pure function. Ownership: texts are their own. Units: bytes. Errors: none; of a damaged
// history, what overlaps is passed over.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/spillway/history/findings/pools.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/history/names.h"

namespace spillway::tools {

// A piece that there would be if the blocks in the way were not there.
struct NearHole {
  uint64_t address = 0, bytes = 0;
  uint64_t free_bytes = 0;        // of it, free already
  uint64_t in_the_way = 0;        // of it, held by blocks
  uint64_t blocks = 0;            // that many
  std::vector<PoolPlace> places;  // who allocated them, most bytes first
};

// Those with the fewest bytes in the way, fewest first, in each segment the best one; at most a few. `asker`:
// the request's own pool and stream, in whose memory it may lie. `request`: as the allocator rounds it.
std::vector<NearHole> near_holes(const DeviceHistory& device, const Moment& moment,
                                 const PoolAndStream& asker, uint64_t request, StackNames* names);

}  // namespace spillway::tools
