// What the strategies that spill have in common: how much host memory is left to them, and what an offer
// says.
//
// Thread-safety: any thread. Errors: none. No CUDA call is made. Units: bytes, microseconds.
#pragma once
#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"

namespace spillway {

// What other devices keep of host memory for their next spills.
enum class Kept : uint8_t { kStays, kCanBeTaken };
// What the budget and the machine leave for blocks of `device`, with what it keeps itself.
uint64_t host_room_bytes(Allocator& allocator, const SpillLimits& limits, DeviceId device, Kept others);
// What may still be made of it, beside what is in use and kept.
uint64_t host_bytes_to_make(Allocator& allocator, const SpillLimits& limits);

// `why_not` with two amounts of memory in its text.
Offer refused(const char* format, uint64_t first, uint64_t second);
// Bytes and their cost; or why not: too little may move. Where the program would become too slow it is the
// last resort, and says so.
Offer offer_of(const SpillEstimate& estimate, Tier tier, double most_slowdown);

}  // namespace spillway
