// Host memory for the next spill is made by a thread beside the program, once a spill is to be expected: the
// driver pins it at a tenth of the link's speed, and all launches would wait for it.
//
// Thread-safety: any thread; called once in a process. Ownership: allocator and limits are used until the
// process ends. Errors: none; where no thread can be made, or memory, a spill makes its own.
#pragma once
#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"

namespace spillway {

// `may_spill`: whether blocks can be moved at all, asked whenever some is needed.
void make_host_memory_beside(Allocator& allocator, const SpillLimits& limits, bool (*may_spill)());

}  // namespace spillway
