// Blocks of other devices that lie on a device leave it when that device's own users need the memory.
//
// Thread-safety: any thread that holds no lock which a launching thread may need. Errors: 0 bytes.
#pragma once
#include <chrono>

#include "strategies/ladder/ladder.h"

namespace spillway {

// For another process that needs memory of `device`. Returns the bytes that went.
uint64_t evict_guests_for_others(Allocator& allocator, Ladder& ladder, const SpillLimits& limits,
                                 DeviceId device, uint64_t bytes,
                                 std::chrono::steady_clock::time_point deadline);

}  // namespace spillway
