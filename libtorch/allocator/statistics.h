// What PyTorch's memory statistics mean, for one device: requests rounded to 512 bytes, as the native
// allocator counts.
//
// Thread-safety: every function may be called from any thread. Units: bytes. A request of up to 1 MiB counts
// to PyTorch's small pool, a larger one to its large pool; physical memory is one arena and counts to the
// large pool.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <mutex>

namespace spillway::libtorch {

class Statistics {
 public:
  void allocated(size_t requested);
  void freed(size_t requested);
  void out_of_memory();
  // `free_parts`: sizes of what is free beside live blocks; PyTorch's inactive_split.
  struct Layout {
    size_t segments = 0;
    size_t pending_blocks = 0, pending_bytes = 0;
    size_t split_blocks = 0, split_bytes = 0;
    size_t reserved = 0, peak_reserved = 0;
    size_t failures = 0;
  };
  c10::CachingDeviceAllocator::DeviceStats read(const Layout& layout);
  void reset_accumulated();
  void reset_peaks();
  size_t allocated_bytes() const;

 private:
  mutable std::mutex mutex_;
  c10::CachingDeviceAllocator::DeviceStats stats_;
  size_t failures_at_reset_ = 0;
  size_t failures_ = 0;
};

// The native allocator's granule: what a request counts as.
constexpr size_t rounded(size_t requested) {
  return (requested + 511) & ~static_cast<size_t>(511);
}

}  // namespace spillway::libtorch
