// Pools: blocks that only requests of the same pool reuse. Pool 0 is the device's default pool; any other
// number is private: what it frees stays mapped where it is, because a captured graph may use it at any time.
#pragma once
#include <cstdint>

namespace spillway {

enum PoolFlags : uint32_t {
  // Nobody allocates from it any more, and no graph uses it: its idle pages serve others.
  kPoolReleased = 1,
  // Its free blocks serve the default pool's requests of the same stream that would fail otherwise.
  kPoolLends = 2,
  // Its blocks share no page with each other.
  kPoolWholePages = 4,
};

inline constexpr uint64_t kEveryPool = UINT64_MAX;

}  // namespace spillway
