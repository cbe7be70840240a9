// Who hears of blocks and pages: the history, and the trackers that a program attaches. Turns the core's
// changes into PyTorch's trace entries.
//
// Thread-safety: every function may be called from any thread. Trackers are called one at a time, for one
// address in the order of its changes, under a lock that the same thread may take again; as natively they
// must not wait for another thread that allocates. Errors: what a tracker throws ends with it: no allocation
// fails for it.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <vector>

#include "base/mutex.h"
#include "libtorch/allocator/history/history.h"
#include "strategies/core/core.h"

namespace spillway::libtorch {

class Listeners {
 public:
  // The stack of the call that is under way on this thread: gathered before it, because the recorder may wait
  // for the interpreter's lock.
  class Call {
   public:
    explicit Call(Context context);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    static const Context& context();

   private:
    Context context_;
    const Context* outer_;
  };

  // Whether anyone wants to hear of what happens from now on.
  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }
  void attach(native::AllocatorTraceTracker tracker);
  void record(const History::Settings& settings);
  History& history() { return history_; }

  // A change that the core tells.
  void saw(uint32_t change, const spillway_block_info& block, c10::cuda::MempoolId_t pool);
  // Of a live block, after the fact (PyTorch 2.14 and newer have an action for it).
  void annotate(c10::DeviceIndex device, const spillway_block_info& block, c10::cuda::MempoolId_t pool,
                const std::string& metadata);
  // What is no change of the core's.
  void tell(native::TraceEntry::Action action, c10::DeviceIndex device, uint64_t address, size_t bytes,
            cudaStream_t stream, c10::cuda::MempoolId_t pool, const Context& context);

 private:
  void tell(const native::TraceEntry& entry);
  // Whether the core has to tell, and whether calls gather.
  void update() SPILLWAY_REQUIRES(mutex_);

  RecursiveMutex<LockOrder::kTrackers> mutex_;
  std::vector<native::AllocatorTraceTracker> trackers_ SPILLWAY_GUARDED_BY(mutex_);
  History history_;
  std::atomic<bool> wanted_{false};
  bool watching_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

// For the core's table: passes changes to the process's one allocator.
void hear(uint32_t change, const spillway_block_info* block);

}  // namespace spillway::libtorch
