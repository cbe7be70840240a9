// What was moved to another tier comes back when the device has had room for long; at the next chance where
// it makes the program slower than its user wants, or instead of what is used less.
//
// Thread-safety: any thread that holds no lock which a launching thread may need; one at a time does it, the
// others pass. Errors: none; what does not come back is tried again later.
#pragma once
#include "strategies/ladder/ladder.h"

namespace spillway {

// Cheap but for one call in many, which looks whether there is something to do, and then asks for the limits.
void unspill_now_and_then(Allocator& allocator, Ladder& ladder, SpillLimits (*limits)());

}  // namespace spillway
