// The pools of captured graphs under the plug-in: which requests go to which, and when one is released.
//
// Thread-safety: every function from any thread. Errors: std::logic_error for a pool that is routed twice, or
// not at all; releasing never fails, because destructors do it.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "spillway/libtorch/plugin.h"

namespace spillway::libtorch {

class PluginPools {
 public:
  void begin(int device, SpillwayPoolId id, SpillwayStreamFilter filter);
  void end(int device, SpillwayPoolId id);
  // One user less. The last one's going releases the pool: its idle pages serve others.
  void release(int device, SpillwayPoolId id);
  // The core's number of the pool that a request of `stream` goes to; 0: the default pool.
  uint64_t route(int device, CUstream_st* stream) {
    return routing_.load(std::memory_order_acquire) ? find_route(device, stream) : 0;
  }

 private:
  using Key = std::pair<int, SpillwayPoolId>;
  struct Pool {
    uint64_t number = 0;
    int users = 0;
  };
  struct Route {
    Key key;
    uint64_t number = 0;
    SpillwayStreamFilter filter;
  };
  uint64_t find_route(int device, CUstream_st* stream);
  std::vector<Route>::iterator route_of(const Key& key) SPILLWAY_REQUIRES(mutex_);

  Mutex<LockOrder::kPools> mutex_;
  std::map<Key, Pool> pools_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<Route> routes_ SPILLWAY_GUARDED_BY(mutex_);
  uint64_t last_number_ SPILLWAY_GUARDED_BY(mutex_) =
      0;  // numbers are never used twice: blocks of a pool may outlive it
  std::atomic<bool> routing_{false};
};

}  // namespace spillway::libtorch
