// The device code of registered kernels: whether the card can run it, and what loading it takes.
//
// Thread-safety: every function may be called from any thread. Ownership: a Binary lives as long as the
// process. Errors: as a launch's. Units: bytes.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "simulator/cards/fat_binary.h"

namespace spillway::runtime {

struct Kernel;

// What __cudaRegisterFatBinary brought. Libraries bring hundreds, so it is looked into when one of its
// kernels is first used.
class Binary {
 public:
  explicit Binary(const void* wrapper) : wrapper_(wrapper) {}
  Binary(const Binary&) = delete;
  Binary& operator=(const Binary&) = delete;

  const void* wrapper() const { return wrapper_; }
  // Empty when it is none that can be read: nothing is known then, and nothing refused.
  const std::vector<cards::Image>& images();
  void add_kernel() { kernels_.fetch_add(1, std::memory_order_relaxed); }
  unsigned kernels() const { return kernels_.load(std::memory_order_relaxed); }

 private:
  const void* wrapper_;
  std::once_flag read_;
  std::vector<cards::Image> images_;
  std::atomic<unsigned> kernels_{0};
};

// Loads a kernel's code on the thread's device, if that has not been done: cudaErrorNoKernelImageForDevice
// when there is none that the card runs (said once for each library), cudaErrorMemoryAllocation when the card
// has no room for it.
cudaError_t load(Kernel& kernel);
// The image of a loaded kernel on `device`; null when nothing is known of its binary.
const cards::Image* image_of(const Kernel& kernel, int device);

}  // namespace spillway::runtime
