// The lock of one device's heap, and the state that it guards: all parts of the heap share it.
//
// Each kind of state is a class of its own without a lock (tiling, page pool, usage, tiers ...). The parts
// that act (requests, reclaiming, spilling, sharing) take the lock for as long as they read or change these,
// and make their driver calls without it: on blocks that are busy and pages that are reserved, so that no
// other thread can take them. base/lock_order.h says which lock may be taken under which.
//
// Thread-safety: any thread; Clang checks who needs the lock. Ownership: of all that is in it. Invariant at
// every release of the lock: held = mapped pages + spare pages + what reservations hold.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "allocator/accounting/holders.h"
#include "allocator/accounting/usage.h"
#include "allocator/allocator.h"
#include "allocator/context.h"
#include "allocator/pages/device.h"
#include "allocator/pages/page_pool.h"
#include "allocator/pages/supply/handle_sizes.h"
#include "allocator/sharing/exports.h"
#include "allocator/streams/recorded_streams.h"
#include "allocator/tiers/choice/access_frequency.h"
#include "allocator/tiers/choice/bandwidth_model.h"
#include "allocator/tiers/choice/need_history.h"
#include "allocator/tiers/registered_blocks.h"
#include "allocator/tiers/spilled_blocks.h"
#include "allocator/tiers/steps/step_clock.h"
#include "allocator/tiers/steps/step_finder.h"
#include "allocator/tiers/steps/step_times.h"
#include "allocator/tiling/spin_lock.h"
#include "allocator/tiling/tiling.h"
#include "base/mutex.h"

namespace spillway {

using HeapLock = Mutex<LockOrder::kHeap, SpinLock>;

// Reasons to leave the fast path, as bits.
enum Slow : uint32_t {
  kSlowForked = 1,     // a child of fork: no CUDA
  kSlowInjection = 2,  // a request may have to fail
  kSlowPending = 4,    // events to poll now and then
  kSlowLadder = 8,     // a request waits: holes that fit it are left to it
  kSlowWatched = 16,   // an observer is told of every change
  kSlowSpilled = 32,   // blocks lie in other tiers: what the device needs is followed
};

// What the trace was last told of the steps' times.
struct ToldSlowdown {
  double predicted = 0, measured = 0;
};

// Blocks in other tiers, and the facts by which blocks are chosen to go there and to come back.
struct TierState {
  explicit TierState(AllocatorContext& shared) : spilled(shared) {}

  SpilledBlocks spilled;
  RegisteredBlocks registered;
  AccessFrequency access;
  NeedHistory needs;
  BandwidthModel bandwidth;
  StepFinder finder;
  StepTimes steps;
  // Since the start: of predicted uses over links; of the exchange of pages, and how often.
  double link_us = 0, moved_us = 0;
  uint64_t moves = 0;
  ToldSlowdown told_slowdown;
  Peers peers;
  bool expects_spill = false;  // a request has failed, or little of the limit is left
};

// What the trace was last told.
struct ToldMemory {
  uint64_t held = 0, peak = 0;
};

struct HeapState {
  HeapState(AllocatorContext& context, std::unique_ptr<Device> opened, uint64_t first_order);
  HeapState(const HeapState&) = delete;
  HeapState& operator=(const HeapState&) = delete;

  void set_slow(uint32_t bits) { slow.fetch_or(bits); }
  void clear_slow(uint32_t bits) { slow.fetch_and(~bits); }
  bool is_slow(uint32_t bits) const { return (slow.load(std::memory_order_relaxed) & bits) != 0; }
  bool forked() const { return is_slow(kSlowForked); }
  bool watched() const { return is_slow(kSlowWatched); }

  // Counts the block as live and returns its place in the order.
  uint64_t commit(Block* block) SPILLWAY_REQUIRES(lock) {
    usage.allocate(block->size, block->tag);
    shared.page_map.set(block->address, block);
    ++order;
    AccessFrequency::begin(block, order);
    return order;
  }
  // Whether `block` is still the live block at that address.
  bool is_live(const Block* block, uint64_t address) const SPILLWAY_REQUIRES(lock) {
    return block->address == address && block->state == BlockState::kLive;
  }
  // What the program's blocks take of the device; followed while blocks lie elsewhere.
  uint64_t need() const SPILLWAY_REQUIRES(lock);
  void note_need() SPILLWAY_REQUIRES(lock) {
    if (!tiers.spilled.empty()) tiers.needs.note(order, need());
  }
  // The pending blocks' bytes that lie on this device.
  uint64_t pending_here() const SPILLWAY_REQUIRES(lock) {
    return usage.pending().bytes - tiers.spilled.pending_bytes();
  }
  BlockInfo info(const Block* block) const SPILLWAY_REQUIRES(lock);
  // The most that may be held.
  uint64_t most_bytes() const SPILLWAY_REQUIRES(lock) {
    return std::min(pages.quota().limit(), device->total_bytes());
  }

  // Read by every request; changed rarely.
  std::atomic<uint32_t> slow{0};
  AllocatorContext& shared;
  const std::unique_ptr<Device> device;
  const uint8_t device_index;
  const uint64_t page_bytes;

  alignas(64) HeapLock lock;
  uint64_t order SPILLWAY_GUARDED_BY(lock);
  std::atomic<uint64_t> requests{0};  // written under the lock
  Tiling tiling SPILLWAY_GUARDED_BY(lock);
  Usage usage SPILLWAY_GUARDED_BY(lock);
  unsigned since_poll SPILLWAY_GUARDED_BY(lock) = 0;
  PagePool pages SPILLWAY_GUARDED_BY(lock);
  HandleSizes handles SPILLWAY_GUARDED_BY(lock);
  RecordedStreams recorded SPILLWAY_GUARDED_BY(lock);
  Holders holders SPILLWAY_GUARDED_BY(lock);
  Exports exports SPILLWAY_GUARDED_BY(lock);
  TierState tiers SPILLWAY_GUARDED_BY(lock);
  spillway_incident_totals incidents SPILLWAY_GUARDED_BY(lock){};
  ToldMemory told SPILLWAY_GUARDED_BY(lock);
  uint64_t maps SPILLWAY_GUARDED_BY(lock) = 0;    // ranges of pages, since the last reset_totals
  uint64_t unmaps SPILLWAY_GUARDED_BY(lock) = 0;  // the same

  StepClock step_clock;

  // Shared while the pages behind addresses change, from the driver's call until the tiling says so;
  // exclusive to change which devices may use them all. Taken before the lock.
  SharedMutex<LockOrder::kMappings> mappings_mutex;
  // Shared while the driver is asked about streams that the tiling names; exclusive while one is taken out
  // because the program destroys it.
  SharedMutex<LockOrder::kStreams> streams_mutex;
};

// Whether a handler runs on this thread: then nothing may wait for memory.
extern thread_local bool inside_handler;

}  // namespace spillway
