// What a device's memory is used for, so that the terms add up to the limit; and the check of every
// invariant.
//
// Thread-safety: any thread, without the heap's lock. Units: bytes.
#pragma once
#include <string>

#include "allocator/heap_state.h"

namespace spillway {

Memory memory_of(HeapState& heap);
// False, and the first broken one.
bool check_invariants(HeapState& heap, std::string* broken);

}  // namespace spillway
