// The time by which a driver call's cost is measured.
//
// Thread-safety: any thread. Errors: none. Units: ns from a beginning of its own.
#pragma once
#include <chrono>
#include <cstdint>

#include "driver/table.h"

namespace spillway::driver {

// With the latencies that a profile of the simulated driver gives its calls: these pass on the virtual clock.
inline uint64_t call_clock_ns(const Table& table) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  auto ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  if (table.simulator == nullptr) return ns;
  SpillwaySimulatorCounts counts{};
  table.simulator->counts(&counts);
  return ns + counts.driver_stall_ns;
}

}  // namespace spillway::driver
