// What a device's memory is used for, so that the terms add up to the limit; and the check of every
// invariant.
//
// Thread-safety: any thread, without the heap's lock. Units: bytes.
#pragma once
#include <optional>
#include <string>

#include "allocator/heap_state.h"

namespace spillway {

// `driver_free`: what the driver has left, where the caller knows; else the driver is asked.
Memory memory_of(HeapState& heap, std::optional<uint64_t> driver_free = std::nullopt);
// False, and the first broken one.
bool check_invariants(HeapState& heap, std::string* broken);

}  // namespace spillway
