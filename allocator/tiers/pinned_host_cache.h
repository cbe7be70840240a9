// Pinned host memory that blocks have left: kept, because the driver takes long to pin it, and given back
// when the host's budget is needed for another size.
//
// Thread-safety: any thread, in the device's context. Ownership: of every handle that was given to it.
// Errors: what the driver does not take back stays here and is offered again.
#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "allocator/pages/device.h"
#include "base/mutex.h"

namespace spillway {

class PinnedHostCache {
 public:
  explicit PinnedHostCache(Device& device) : device_(device) {}
  // One of exactly this size.
  std::optional<CUmemGenericAllocationHandle> take(uint64_t bytes);
  void keep(uint64_t bytes, CUmemGenericAllocationHandle handle);
  uint64_t bytes() const;
  // Down to `most_bytes`, the largest first.
  void shrink(uint64_t most_bytes);

 private:
  uint64_t held() const SPILLWAY_REQUIRES(mutex_);

  Device& device_;
  mutable Mutex<LockOrder::kPinnedHostCache> mutex_;
  std::multimap<uint64_t, CUmemGenericAllocationHandle> by_bytes_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
