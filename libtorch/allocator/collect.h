// Lets go of memory that LibTorch only keeps for others, before anything else is tried for a request that is
// short: tensors that receivers are done with, free segments of released memory pools.
//
// Thread-safety: `collect_when_short` is called once, by the allocator's `init`. Errors: a warning.
#pragma once

namespace spillway::libtorch {

// Tells the core how.
void collect_when_short();

}  // namespace spillway::libtorch
