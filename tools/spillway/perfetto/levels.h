// How much memory was what, at each moment of a history.
//
// Thread-safety: pure functions. Ownership: plain values. Units: bytes. Errors: what a damaged file says may
// add up to less than nothing, which is 0.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "tools/spillway/history/lives.h"

namespace spillway::tools {

enum class MemoryLevel : uint8_t { kInUse, kReserved, kPending, kIdle };
inline constexpr size_t kLevels = 4;
inline constexpr const char* kLevelNames[kLevels] = {"in use", "reserved", "pending", "idle"};
using Levels = std::array<uint64_t, kLevels>;  // by MemoryLevel

// By moment.
std::vector<Levels> levels_of(const Lives& lives);

// The moments that are shown, in order: of about `most` stretches each where most is in use, where most is
// reserved, and the last; and those of `always`.
std::vector<size_t> points_of(const std::vector<Levels>& levels, size_t most,
                              const std::vector<size_t>& always);

}  // namespace spillway::tools
