// The one core in the process, libspillway.so, as the shim calls it.
//
// Thread-safety: `load_core` is called once, before any other thread allocates; afterwards everything is
// read-only. Errors: `load_core` returns what was wrong, or "" when the core is ready.
#pragma once
#include <string>

#include "strategies/core/core.h"
#include "strategies/streams/streams.h"

namespace spillway::libtorch {

struct Core {
  const spillway_core_table* table = nullptr;
  decltype(&spillway_query) query = nullptr;
  decltype(&spillway_limit) limit = nullptr;
  decltype(&spillway_reset_peaks) reset_peaks = nullptr;
  decltype(&spillway_last_error) last_error = nullptr;
  decltype(&spillway_set_lasting_streams) set_lasting_streams = nullptr;
};

// Loads libspillway.so from beside this library and checks its version.
std::string load_core();

const Core& core() noexcept;

// The core's account of `device`; all zeros where it has none.
spillway_memory memory_of(int device) noexcept;
spillway_usage usage_of(int device) noexcept;

}  // namespace spillway::libtorch
