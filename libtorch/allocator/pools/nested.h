// A memory pool whose memory comes from an allocator of its own: torch.cuda.MemPool(allocator), as programs
// use it for memory that NCCL or another library must have made. Segments are asked from that allocator in
// PyTorch's sizes, cut into blocks, and given back to it when the pool is released and they are free.
//
// Thread-safety: every function may be called from any thread. Ownership: segments are the other allocator's;
// blocks are the caller's until freed. Errors: what the other allocator throws passes through; an address
// that is none of ours is told by the return value. Units: bytes.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "libtorch/allocator/pools/segments.h"
#include "strategies/core/core.h"

namespace spillway::libtorch {

class NestedPool {
 public:
  using Source = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;
  // Who else has a say, under this pool's lock.
  struct Owner {
    // Hears of each SPILLWAY_CHANGE_*.
    std::function<void(uint32_t change, const spillway_block_info& block)> tell;
    // Whether a segment may be asked for, which then counts; and that it was given back.
    std::function<bool(uint64_t bytes)> charge;
    std::function<void(uint64_t bytes)> discharge;
  };
  NestedPool(int device, uint64_t number, Source source, Owner owner)
      : device_(device), number_(number), source_(std::move(source)), owner_(std::move(owner)) {}

  uint64_t number() const { return number_; }
  // Null: the other allocator has no memory, or the owner refuses it.
  void* allocate(uint64_t bytes, cudaStream_t stream);
  // For a request of the default pool that would fail; null unless the pool lends and a free block fits.
  void* borrow(uint64_t bytes, cudaStream_t stream);
  // False: not a live block of this pool. `freed`: the block as it was.
  bool free(void* address, spillway_block_info* freed);
  bool record_stream(void* address, cudaStream_t stream);
  bool find(const void* address, spillway_block_info* block);

  void set_lends(bool lends);
  void set_whole();  // from now on a segment holds one block
  // No more requests: segments go back as they become free.
  void release();
  bool gone();  // released, and nothing is left
  // Gives back the segments that are wholly free, of a released pool; their bytes.
  uint64_t empty_cache();

  void add_segments(std::vector<Segment>* segments);
  void add_usage(spillway_usage* usage);
  uint64_t reserved();
  void reset_peaks();
  void reset_totals();

 private:
  struct Part {
    uint64_t bytes = 0, requested = 0, segment = 0;
    cudaStream_t stream = nullptr;
    BlockState state = BlockState::kFree;
    std::vector<cudaStream_t> uses;
    std::vector<cudaEvent_t> events;
  };
  using Parts = std::map<uint64_t, Part>;

  Parts::iterator best(uint64_t bytes, cudaStream_t stream) SPILLWAY_REQUIRES(mutex_);
  Parts::iterator grow(uint64_t bytes, cudaStream_t stream) SPILLWAY_REQUIRES(mutex_);
  void* ask(uint64_t bytes);
  Parts::iterator live(const void* address) SPILLWAY_REQUIRES(mutex_);
  void split(Parts::iterator part, uint64_t bytes) SPILLWAY_REQUIRES(mutex_);
  void put_free(Parts::iterator part) SPILLWAY_REQUIRES(mutex_);
  void* take(Parts::iterator part, uint64_t bytes, uint64_t size) SPILLWAY_REQUIRES(mutex_);
  static void mark_uses(Part& part);
  void poll() SPILLWAY_REQUIRES(mutex_);
  spillway_block_info describe(const Parts::value_type& part) const;
  template <class Operation>
  void count(const Part& part, Operation operation) SPILLWAY_REQUIRES(mutex_);

  const int device_;
  const uint64_t number_;
  const Source source_;
  const Owner owner_;
  Mutex<LockOrder::kNestedPool> mutex_;
  Parts parts_ SPILLWAY_GUARDED_BY(mutex_);                            // by address; they tile the segments
  std::map<uint64_t, uint64_t> segments_ SPILLWAY_GUARDED_BY(mutex_);  // address, size
  std::vector<uint64_t> pending_ SPILLWAY_GUARDED_BY(mutex_);
  spillway_usage usage_ SPILLWAY_GUARDED_BY(mutex_){};
  uint64_t reserved_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool released_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool lends_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool whole_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway::libtorch
