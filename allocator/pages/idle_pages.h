// Idle pages, for the strategies: how many could serve a request, and what becomes of them.
//
// Thread-safety: any thread. Errors: none. Units: bytes.
#pragma once
#include <cstdint>

#include "allocator/units.h"

namespace spillway {

class Allocator;

struct ReclaimEstimate {
  uint64_t useful_bytes = 0;  // 0: it would not serve the request
  uint64_t pages = 0;         // to unmap and map again
  bool waits = false;         // a stream has to be waited for first
};

struct DivisionEstimate {
  uint64_t useful_bytes = 0;        // 0: it would not help the request
  uint64_t handles = 0, pages = 0;  // to divide, and in them
};

enum class IdlePages : uint8_t {
  kKeep,      // unmap and hold for the request: stitching
  kGiveBack,  // unmap and release to the driver, which has to create others
};

// Waits until no device that the allocator uses has work; false where that is not possible, as during a
// capture.
bool wait_until_all_idle(Allocator& allocator) noexcept;

}  // namespace spillway
