// LibTorch's own caching allocator in this process, reached through the shim of its version
// (libspillway_plugin.so finds it): no type of LibTorch's appears here.
//
// Thread-safety: any thread. Errors: false where LibTorch is not in the process, its version has no shim, or
// another allocator stands in for its own.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "driver/table.h"

namespace spillway {

// Loads what `empty_framework_cache` needs. May load libraries: no lock of anybody's may be held.
bool prepare_framework();
// The same for a thread that may hold a lock: another thread does it, and is waited for so long at most.
bool prepare_framework_within(std::chrono::milliseconds most);
bool framework_is_prepared();
// LibTorch's version, such as "2.15.0"; "" where it is not in the process.
std::string framework_version();
// Whether "nccl" is LibTorch's backend nccl2, as far as the version and TORCH_DIST_USE_NCCL2 say: 2.15 made
// it the usual one. False until the framework is prepared.
bool framework_uses_nccl2();
// Gives LibTorch's idle memory on every device back to the driver. Takes its allocator's locks and waits for
// the devices' work.
bool empty_framework_cache();
// What LibTorch's own allocator holds of a device, what of that is in use, and what it could give back: idle,
// and not part of a segment that is in use elsewhere. Nothing: it is not prepared,
// has not been used, or was busy for `most`.
struct FrameworkMemory {
  uint64_t held_bytes = 0, used_bytes = 0, releasable_bytes = 0;
};
std::optional<FrameworkMemory> framework_memory(int device, std::chrono::milliseconds most);
// The same at once, for a thread that is inside LibTorch's allocator and so may hold its lock already.
std::optional<FrameworkMemory> framework_memory_inside(int device);
// All of it, for such a thread at its request's failure. Nothing: as above, or another thread asks too.
struct FrameworkState {
  uint64_t requested, rounding, pending, idle, pools_idle;  // bytes
  double fraction;                                          // of the device that it may hold
  uint64_t held() const { return requested + rounding + pending + idle + pools_idle; }
};
std::optional<FrameworkState> framework_state_inside(int device);
// For how many requests it has given its cache back, to ask the driver again; and what the driver has ever
// given.
struct FrameworkRetries {
  uint64_t retries = 0, got_bytes = 0;
};
std::optional<FrameworkRetries> framework_retries_inside(int device);
// What the calling thread frees from now on breaks no capture that another thread begins meanwhile.
void stay_out_of_captures(const driver::Table& table);

}  // namespace spillway
