// The allocator of a memory pool, torch.cuda.MemPool(allocator), as the core's source of segments: programs
// use it for memory that NCCL or another library must have made. It is asked in PyTorch's sizes.
//
// Thread-safety: any thread. Ownership: the core's, until it says `end`. Errors: what the allocator throws is
// kept on the thread while it passes the core, and thrown again at the boundary.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <exception>
#include <memory>

#include "strategies/core/core.h"

namespace spillway::libtorch {

using PoolAllocator = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;

spillway_segment_source source_of(int device, PoolAllocator allocator);

// Throws what a pool's allocator threw at this thread's request, which then has failed.
void throw_own_failure();

// While there is one on a thread, what a pool's allocator throws when it is given memory back is kept in it;
// elsewhere it becomes a warning, because it is no failure of who happens to give back.
class GivingBack {
 public:
  GivingBack();
  ~GivingBack();
  GivingBack(const GivingBack&) = delete;
  GivingBack& operator=(const GivingBack&) = delete;
  // The first that was thrown, if any was.
  void throw_failure();

  void keep(std::exception_ptr failure);

 private:
  std::exception_ptr failure_;
  GivingBack* const outer_;
};

}  // namespace spillway::libtorch
