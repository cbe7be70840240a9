// PyTorch's memory statistics of one device, from what the core counts.
//
// Thread-safety: every function may be called from any thread. Units: bytes. A block of up to 1 MiB counts to
// PyTorch's small pool, a larger one to its large pool, and so does the memory around it.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstddef>
#include <map>

#include "base/mutex.h"
#include "strategies/core/core.h"

namespace spillway::libtorch {

class Statistics {
 public:
  // throw_on_cudamalloc_oom refused a request.
  void rejected() { rejections_.fetch_add(1, std::memory_order_relaxed); }
  void out_of_memory() { ooms_.fetch_add(1, std::memory_order_relaxed); }
  // Every stream was waited for, so that memory could go back.
  void synchronized() { waits_.fetch_add(1, std::memory_order_relaxed); }
  // Blocks of max_split_size and more.
  void oversize_allocated();
  void oversize_freed();
  // Of one of PyTorch's two pools. `split`: what is free in an allocation beside other blocks; its
  // inactive_split.
  struct Physical {
    size_t segments = 0, reserved = 0;
    size_t split_blocks = 0, split_bytes = 0;
  };
  struct Layout {
    Physical small, large;
    size_t reserved = 0, peak_reserved = 0;
    size_t failures = 0;
    std::map<c10::cuda::MempoolId_t, size_t> pools;  // what private pools hold
  };
  c10::CachingDeviceAllocator::DeviceStats read(const spillway_usage& usage, const Layout& layout);
  void reset_accumulated();
  void reset_peaks();

 private:
  Mutex<LockOrder::kLeaf> mutex_;
  // Levels that are known only when somebody asks: their turnover is what was seen of it.
  c10::CachingDeviceAllocator::DeviceStats observed_ SPILLWAY_GUARDED_BY(mutex_);
  size_t failures_at_reset_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  size_t failures_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> ooms_{0}, waits_{0}, rejections_{0};
};

// The native allocator's granule: what a request counts as.
constexpr size_t rounded(size_t requested) {
  return (requested + 511) & ~static_cast<size_t>(511);
}

}  // namespace spillway::libtorch
