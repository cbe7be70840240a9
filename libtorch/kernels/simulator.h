// The simulated driver as the kernels see it.
//
// Thread-safety: every function may be called from any thread once `find_simulator` returned. Ownership:
// none. Errors: `submit` throws c10::Error naming the operator. Units: bytes, virtual nanoseconds.
#pragma once
#include <cstddef>

#include "driver/simulator_control.h"

namespace spillway::kernels {

// Looks the control interface up in the loaded libcuda.so.1. Throws when that library is a real driver or
// none is loaded.
void find_simulator();
const SpillwaySimulatorControl& simulator();

// Whether the simulated devices store bytes to compute with.
bool stores_values();

// Whether what CUDA's libraries take is to be charged.
bool models_overheads();

// What to add to a device address to read and write its bytes on the host. Constant for the life of the
// process.
ptrdiff_t alias_offset();

// Enters the work of operator `name` in the order of `stream`; the referee checks `ranges` now.
void submit(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
            uint64_t duration_ns);

// While one lives, nothing is said about kernels that this thread's CUDA code launches: the caller computes
// what they would.
class StandIn {
 public:
  StandIn() noexcept;
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
};

}  // namespace spillway::kernels
