// How many blocks the cache gets: of a card a share of its memory, less what is in use once the weights are
// there, and what a step needs. A block has a part on each device that has layers: the device with room for
// the fewest decides.
//
// Thread-safety: one thread. Errors: NoRoomError, with the device and what to change. Units: bytes.
#pragma once
#include "trainer/runtime/core.h"
#include "trainer/serve/batching/scheduler.h"
#include "trainer/serve/engine/served_model.h"

namespace spillway::trainer::serve {

struct CacheOptions {
  double memory_utilization = 0.9;  // of each card's memory, or of its limit
  uint64_t bytes = 0;  // of the cache, on all devices; 0: by the utilization, or kCpuBytes on the CPU
  static constexpr uint64_t kCpuBytes = uint64_t{256} << 20;
};

// Computes the largest step that `limits` and the context allow, to see what it needs. `*told` is a line
// about it.
uint32_t cache_blocks(const ServedModel& model, const CacheOptions& options, const BatchLimits& limits,
                      const Core& core, std::string* told);

}  // namespace spillway::trainer::serve
