// The CUDAAllocator of LibTorch 2.8 to 2.10 in the form that 2.11 gave it: four functions got another
// argument. What LibTorch calls stands here and asks 2.11's, which the allocator implements.
//
// Thread-safety: as LibTorch's. Ownership: a base of the one Allocator, never destroyed.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>
#include <string>
#include <vector>

#include "libtorch/allocator/history/history.h"

namespace spillway::libtorch {

#if SPILLWAY_LIBTORCH >= 211
using Oldest = native::CUDAAllocator;
#else

class Before2_11 : public native::CUDAAllocator {
 public:
  virtual native::SnapshotInfo snapshot(c10::cuda::MempoolId_t pool, bool include_traces) = 0;
  virtual void createOrIncrefPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool,
                                  std::shared_ptr<CUDAAllocator> allocator) = 0;
  virtual void setUseOnOOM(c10::DeviceIndex device, c10::cuda::MempoolId_t pool, bool use) = 0;
  virtual void recordHistory(bool enabled, native::CreateContextFn recorder, size_t most_entries,
                             native::RecordContext when, bool clear,
                             const std::vector<std::string>& skipped) = 0;

  native::SnapshotInfo snapshot(c10::cuda::MempoolId_t pool) final { return snapshot(pool, true); }
  // The program owns the allocator and keeps it longer than the pool, as natively.
  void createOrIncrefPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool,
                          CUDAAllocator* allocator) final {
    createOrIncrefPool(device, pool, std::shared_ptr<CUDAAllocator>(std::shared_ptr<void>(), allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) final {
    setUseOnOOM(device, pool, true);
  }
  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t most_entries,
                     native::RecordContext when, bool clear) final {
    recordHistory(enabled, recorder, most_entries, when, clear, {});
  }

#if SPILLWAY_LIBTORCH < 210
  // 2.10 added it: no pool is told so here.
  virtual void setNoSplit(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) = 0;
#endif
};

using Oldest = Before2_11;
#endif

}  // namespace spillway::libtorch
