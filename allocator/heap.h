// One device's memory: hits and frees, and the parts that do the rest.
//
// Thread-safety: every public member may be called from any thread. The heap's lock is held for the hot path
// only; see heap_state.h. In a forked child nothing is done. For the contract see Allocator.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/request/request_path.h"
#include "allocator/sharing/sharing.h"
#include "allocator/streams/progress_marks.h"
#include "allocator/tiers/residence.h"

namespace spillway {

class DeviceHeap {
 public:
  DeviceHeap(AllocatorContext& shared, std::unique_ptr<Device> device, uint64_t order);
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  Status allocate(const Request& request, uint64_t* address, FailurePtr* failure);
  Status allocate_at(const Request& request, uint64_t address);
  Status free(Block* block, uint64_t address, FreedBlock* freed);
  Status record_stream(Block* block, uint64_t address, StreamId stream);
  void stream_ends(StreamId stream);
  // A mark behind what is queued on the stream, and how many have passed. False: the context is another
  // device's, or not the primary one.
  bool mark_progress(CUcontext current, StreamId stream);
  uint64_t passed_marks();
  double slowest_marks_us();
  bool find_block(uint64_t address, BlockInfo* out);
  void blocks(std::vector<BlockInfo>* out);

  // `pool`: of which to give back idle pages; kEveryPool: of all that may.
  uint64_t give_back(uint64_t bytes_asked, uint64_t pool = kEveryPool, Round round = Round::kUp);
  Status set_pool(uint64_t pool, uint32_t flags);
  Status set_source(uint64_t pool, const PoolSettings::Source& source);
  uint64_t empty_sources(uint64_t pool);
  void set_limit(uint64_t bytes);
  bool wait_until_idle();

  DeviceUsage usage();
  void reset_totals();
  void reset_peaks();
  Status set_site(Block* block, uint64_t address, uint64_t site, uint64_t bytes);
  std::vector<SiteHolding> holders();

  HeapState& state() { return heap_; }
  const HeapState& state() const { return heap_; }
  Residence& residence() { return residence_; }
  BlockReturns& returns() { return returns_; }
  Sharing& sharing() { return sharing_; }

 private:
  Status allocate_slow(const Request& request, uint64_t size, uint64_t* address, FailurePtr* failure);
  Status serve_slow(const Request& request, uint64_t size, uint64_t* address, FailurePtr* failure);
  uint64_t pool_size(const Request& request);
  Block* take_at(const Request& request, uint64_t address, uint64_t size, journal::BlockRecord* taken)
      SPILLWAY_REQUIRES(heap_.lock);
  // What is left to do, without the lock, for a block that others use too or that lies elsewhere.
  struct SharedRelease {
    bool pending = false;
    std::vector<int> descriptors;
    std::vector<RecordedStream> streams;
  };
  uint64_t begin_release(Block* block, FreedBlock* freed) SPILLWAY_REQUIRES(heap_.lock);
  SharedRelease release_shared(Block* block, uint64_t order) SPILLWAY_REQUIRES(heap_.lock);
  void finish_release(Block* block, journal::BlockRecord freed, SharedRelease release);
  void forget_site(Block* block) SPILLWAY_REQUIRES(heap_.lock);

  HeapState heap_;
  Drain drain_{heap_};
  ProgressMarks marks_{*heap_.device};
  TierMemory tier_memory_{*heap_.device, heap_.shared};
  BlockReleaser releaser_{heap_, tier_memory_};
  PendingFrees pending_{heap_, drain_, releaser_};
  Migration migration_{heap_, releaser_, tier_memory_.host()};
  Reclaimer reclaimer_{heap_, drain_};
  PageSupply supply_{heap_, reclaimer_};
  FileCopies file_{heap_, migration_};
  Spiller spiller_{heap_, tier_memory_, migration_, file_};
  Unspiller unspiller_{heap_, reclaimer_, supply_, tier_memory_, migration_};
  Exchanger exchanger_{heap_, spiller_, unspiller_};
  Residence residence_{heap_, tier_memory_, spiller_, unspiller_, exchanger_};
  Growth growth_{heap_, reclaimer_, supply_};
  Allocations allocations_{heap_, drain_, reclaimer_};
  BlockProvider provider_{heap_, reclaimer_, growth_, allocations_};
  HandleDivider divider_{heap_, reclaimer_, supply_, migration_};
  RequestPath requests_{heap_, growth_, provider_, {reclaimer_, pending_, spiller_, divider_}};
  BlockReturns returns_{heap_, requests_, tier_memory_, migration_, file_, unspiller_};
  Sharing sharing_{heap_, drain_, returns_};
};

}  // namespace spillway
