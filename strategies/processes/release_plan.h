// How much a process gives when another asks: what it caches, but nothing that its guarantee covers.
//
// Thread-safety: pure functions. Units: bytes, of one device.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "strategies/framework/framework.h"

namespace spillway {

struct Holding {
  uint64_t held_bytes = 0, cached_bytes = 0;  // by Spillway's allocator
  uint64_t spilled_bytes = 0;                 // in use, and moved by it to another tier
  uint64_t spilled_peer_bytes = 0;            // of these, to other devices
  uint64_t spilled_nvme_bytes = 0;            // or to a file
  uint64_t limit_bytes = 0;                   // of the process, or of that; 0: none
  uint64_t native_bytes = 0;                  // by driver calls, LibTorch's own allocator among the callers
  std::optional<FrameworkMemory> framework;   // nothing: not known
};

struct ReleasePlan {
  bool framework = false;   // all that LibTorch's own allocator caches: it gives all or nothing
  bool every_page = false;  // all that Spillway's allocator caches
  uint64_t bytes = 0;       // or at most these, in whole pages
};

// After it the process holds `guarantee_bytes` still, if it held them before. What LibTorch holds counts only
// where it is known; where it is not and there is a guarantee, LibTorch gives nothing.
ReleasePlan release_plan_of(const Holding& holding, uint64_t guarantee_bytes);
// LibTorch's own allocator empties its cache on every device at once: whether the guarantee allows it on
// each.
bool framework_may_give(std::span<const Holding> devices, uint64_t guarantee_bytes);
// What of the device would come free if all of it were given.
uint64_t spare_of(const Holding& holding, uint64_t guarantee_bytes, bool framework_may_give);

}  // namespace spillway
