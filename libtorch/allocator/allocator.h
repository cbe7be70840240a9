// LibTorch's CUDAAllocator over Spillway's core: every virtual function of the LibTorch that it is built for
// (versions/).
//
// Thread-safety: as LibTorch demands, every function from any thread; `init` by one. Ownership: never
// destroyed, because tensors may outlive static destruction. Errors: c10::OutOfMemoryError and PlanChange
// from allocations; a free never throws; what is not built yet raises NotImplementedError naming the
// function. Units: bytes.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "libtorch/allocator/history/observers.h"
#include "libtorch/allocator/history/statistics.h"
#include "libtorch/allocator/pools/pools.h"
#include "libtorch/allocator/pools/segments.h"
#include "libtorch/allocator/settings.h"
#include "libtorch/allocator/versions/interface.h"
#include "strategies/core/core.h"

namespace spillway::libtorch {

class Allocator final : public Interface {
 public:
  // `before`: the allocator that this one replaces. It keeps serving the blocks that it gave out.
  // One in a process.
  explicit Allocator(native::CUDAAllocator* before);

  // c10::Allocator
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  // c10::DeviceAllocator
  bool initialized() override { return !devices_.empty(); }
  void emptyCache(c10::cuda::MempoolId_t pool) override;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;

  // CUDAAllocator
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* address) override;
  void init(int device_count) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void enable(bool value) override;
  bool isEnabled() const override { return !off(); }
  void cacheInfo(c10::DeviceIndex device, size_t* largest_block) override;
  void* getBaseAllocation(void* address, size_t* bytes) override;
  native::SnapshotInfo snapshot(c10::cuda::MempoolId_t pool, bool include_traces) override;
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override;
  void enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool peer_access) override;
  std::string name() override { return "spillway"; }

  // Memory pools, also of captured graphs.
  void beginAllocateToPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) override;
  void releasePool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override;
  void setUseOnOOM(c10::DeviceIndex device, c10::cuda::MempoolId_t pool, bool use) override;
  void setNoSplit(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::cuda::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;

  // Sharing between processes: ipc.cpp.
  native::ShareableHandle shareIpcHandle(void* address) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // History: diagnostics.cpp.
  bool isHistoryEnabled() override { return listeners_.history().enabled(); }
  void recordHistory(bool enabled, native::CreateContextFn recorder, size_t most_entries,
                     native::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) override;
  void pushCompileContext(std::string& context) override;
  void popCompileContext() override;
  // A change of the core's, for those who listen.
  void hear(uint32_t change, const spillway_block_info& block) noexcept;

  // Checkpoints of pools: checkpoints.cpp.
  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex,
                                                             c10::cuda::MempoolId_t) override;
  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex,
                                                 std::shared_ptr<native::AllocatorState>) override;

 protected:
  // For what newer versions added.
  Context context_of(const void* block) override;
  void annotate_block(const void* block, const std::string& metadata) override;
  void* allocate_at(size_t bytes, void* address) override;

 private:
  struct Device {
    explicit Device(int index) : pools(index) {}
    Statistics statistics;
    Pools pools;
    std::atomic<double> fraction{1.0};
    Mutex<LockOrder::kMemoryFraction> limit_mutex;
    uint64_t user_limit SPILLWAY_GUARDED_BY(limit_mutex) = 0;  // without fractions; 0: not asked yet
    uint64_t core_limit SPILLWAY_GUARDED_BY(limit_mutex) = 0;  // what the last fraction made of it; 0: none
    std::once_flag context_made;
  };

  static constexpr size_t kExabyte = size_t{1} << 60;  // what no tensor has, natively too

  // Who asks for a block.
  struct Asker {
    c10::DeviceIndex device;
    cudaStream_t stream;
    uint64_t pool;
  };

  bool off() const { return off_.load(std::memory_order_relaxed); }
  Device& device(c10::DeviceIndex index);
  void* allocate_on(c10::DeviceIndex index, size_t bytes, cudaStream_t stream);
  [[noreturn]] static void refuse_exabytes();
  [[noreturn]] void reject(c10::DeviceIndex index, const spillway_failure& failure);
  [[noreturn]] void fail(const Asker& asker, spillway_status status, const spillway_failure& failure);
  c10::DeviceIndex current_device() const;
  void* serve(c10::DeviceIndex index, size_t bytes, cudaStream_t stream);
  void* obtain(const Asker& asker, size_t bytes);
  void release(void* address);
  native::SegmentInfo describe(const Segment& segment, c10::DeviceIndex device);

  native::CUDAAllocator* const before_;
  std::atomic<bool> off_{false};  // torch.cuda.caching_allocator_enable(False)
  std::vector<std::unique_ptr<Device>> devices_;
  Settings settings_;
  Listeners listeners_;
  Mutex<LockOrder::kLeaf> observers_mutex_;
  std::vector<native::OutOfMemoryObserver> observers_ SPILLWAY_GUARDED_BY(observers_mutex_);
};

}  // namespace spillway::libtorch
