// Whether what PyTorch's own allocator has in use grew all along, as far as it was looked at now and then:
// all that is known of it where the program's allocations are not recorded.
//
// Thread-safety: pure functions. Units: bytes, nanoseconds.
#pragma once
#include <optional>
#include <vector>

#include "tools/spillway/report/analysis.h"

namespace spillway::tools {

inline constexpr size_t kFewestPoints = 8;  // with fewer nothing is told

struct SteadyRise {
  uint64_t from_bytes = 0, to_bytes = 0, span_ns = 0;
};

// The first quarter of the time, in which a program sets itself up, is left out. Bytes: the least that was in
// use in the first and the last third of the rest. Nothing: it did not rise, or was not looked at often
// enough.
std::optional<SteadyRise> steady_rise(const std::vector<CoursePoint>& course);

}  // namespace spillway::tools
