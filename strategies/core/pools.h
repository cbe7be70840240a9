// The program's stream-ordered memory pools, as the preloaded library sees them.
//
// Thread-safety: any thread. Ownership: what was told stays for ever. Errors: without the preloaded library
// there are none.
#pragma once
#include "strategies/core/core.h"

namespace spillway {

void set_pools(const spillway_pools* pools);
// Whether anything was ever allocated from one.
bool pools_are_used();
// None of them is destroyed meanwhile.
void visit_pools(int device, void (*visit)(void* context, uint64_t pool), void* context);

}  // namespace spillway
