// PyTorch's memory pools of one device: which requests go to which pool, and when a pool is released.
//
// A pool is private to the requests that are routed to it: those of a stream that a filter accepts, between
// `begin` and `end`. It is released when its last user (a MemPool, a captured graph) is gone; until then its
// addresses are kept, because a graph uses them at each replay.
//
// Thread-safety: every function may be called from any thread. Nothing of a pool's own allocator is called
// under our lock. Errors: c10::Error, as the native allocator's.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "libtorch/allocator/pools/own_allocator.h"

namespace spillway::libtorch {

class Pools {
 public:
  using Id = c10::cuda::MempoolId_t;
  using Filter = std::function<bool(cudaStream_t)>;

  explicit Pools(int device) : device_(device) {}

  // `own`: the allocator that a new pool's memory comes from; null: the driver's.
  void add_user(Id id, PoolAllocator own);
  void remove_user(Id id);
  int users(Id id);
  void begin(Id id, Filter filter);
  void end(Id id);
  void set_lends(Id id, bool lends);
  void set_whole_pages(Id id);

  // The core's number of the pool that a request of `stream` goes to; 0: the default pool.
  uint64_t route(cudaStream_t stream) {
    return routing_.load(std::memory_order_acquire) ? find_route(stream) : 0;
  }
  // The core's number of a pool, 0 if there is none, and back.
  uint64_t number_of(Id id);
  uint64_t released_number_of(Id id);
  Id id_of(uint64_t number);

 private:
  struct Pool {
    uint64_t number = 0;
    int users = 0;
    uint32_t flags = 0;
  };
  Pool& pool(Id id) SPILLWAY_REQUIRES(mutex_);  // made if need be
  Pool& known(Id id, const char* function) SPILLWAY_REQUIRES(mutex_);
  void change(Id id, uint32_t added, uint32_t removed = 0);
  void set_flags(uint64_t number, uint32_t flags) const;
  uint64_t find_route(cudaStream_t stream);
  // The pool that is to be released now; of number 0: none is.
  Pool remove_user_of(Id id);

  const int device_;
  mutable Mutex<LockOrder::kPools> mutex_;
  std::map<Id, Pool> pools_ SPILLWAY_GUARDED_BY(mutex_);
  // Whose blocks may outlive them: the newest, because a program may use a new pool in each step.
  static constexpr size_t kReleasedNames = 256;
  struct Released {
    uint64_t number = 0;
    Id id;
  };
  std::deque<Released> released_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::pair<Id, Filter>> routes_ SPILLWAY_GUARDED_BY(mutex_);
  std::atomic<bool> routing_{false};
};

}  // namespace spillway::libtorch
