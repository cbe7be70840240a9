// The one table of lock order: a thread that holds a lock takes only locks that stand below it here.
// Builds with SPILLWAY_CHECK_LOCKS (the sanitizers') end the program where that is broken, and name the locks
// by their places here, counted from 0.
//
// Thread-safety: any thread. Errors: `taking` does not return where the order is broken.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace spillway {

enum class LockOrder : uint8_t {
  // Of PyTorch's side, which calls the core with these held.
  kPluginInstall,    // libtorch/plugin: Spillway becomes PyTorch's allocator
  kShimInstall,      // libtorch/allocator: the same, by one version's library
  kNativeState,      // libtorch/allocator: one snapshot of the native allocator at a time
  kKernelsInstall,   // libtorch/kernels
  kKernelsAdopt,     // libtorch/kernels: operators that other libraries register
  kRehearsalResult,  // libtorch/rehearsal: one thread writes the result
  kIpcImports,       // libtorch/allocator/ipc: what other processes share
  kMemoryFraction,   // libtorch: the limit of a device as a fraction
  kTrackers,         // libtorch/allocator/history: a program's trackers, one call at a time
  kPools,            // libtorch: pools of a device, by PyTorch's numbers
  // Of the trainer, which asks for memory with it held.
  kKeptFile,  // trainer/residency/activations: a disk's file, one thread at a time
  // The core's.
  kProcessStart,     // strategies/core: the one core of a process begins
  kLedgerStart,      // strategies/processes: this process joins the ledger
  kUnspill,          // strategies: one thread brings blocks back
  kDriverCallers,    // strategies/core: whose turn it is on a device
  kLadderOfDevice,   // allocator/request: one handler at a time on a device
  kStrategies,       // strategies/ladder: the list of strategies
  kDeadlineWorker,   // strategies/framework
  kFrameworkCourse,  // strategies/framework
  kSites,            // strategies/sites
  kBudgetSettings,   // strategies/budget
  kLedgerAsk,        // processes: one need at a time
  kLedgerKept,       // processes: what was given to this process
  kAllocatorStart,   // allocator: devices are opened one at a time
  kInjection,        // allocator: requests that tests let fail
  kShare,            // allocator/sharing: one block is shared at a time
  kFileBuffers,      // allocator/tiers: one thread at a time uses the buffers
  kPendingFrees,     // allocator/streams
  kImports,          // allocator/sharing: other processes' pages
  kMappings,         // allocator/sharing: pages behind addresses change, or who may use them
  kLeftOver,         // allocator/tiers: staging that could not be unmapped
  kStepClock,        // allocator/tiers: marks on the program's stream
  kStreams,          // allocator/streams: streams that the driver is asked about
  kHeap,             // allocator: tiling and counters of a device
  kTags,             // strategies/core: phases, steps, pins
  kObserver,         // allocator/accounting: who is told
  kHostMemory,       // allocator/tiers: host memory that is kept
  kPageFile,         // allocator/tiers
  kBackoff,          // base
  kHostPages,        // allocator/pages: where host memory can be made
  kProgressMarks,    // allocator/streams: marks between queued work
  kDeviceEvents,     // allocator/pages: the device's spare events
  kDeviceStream,     // allocator/pages: the device's own stream
  // Of what the core calls: the preloaded library, a rehearsal, and the simulated driver and its libraries.
  kNativePools,       // interpose/account: pools of the program, while they are visited
  kNativeGraphs,      // interpose/account: memory of the program's graphs
  kNativeTable,       // interpose/account: what the program holds by itself
  kUnknownSymbols,    // interpose/hooks: functions of a newer driver
  kSummary,           // interpose: this process's place in the summary
  kRehearsalState,    // libtorch/rehearsal: all that the probe knows
  kKernelLoad,        // simulator/runtime: one kernel is loaded at a time
  kSimulatedCode,     // simulator: device memory that code takes, and what was said of it
  kNcclCommunicator,  // simulator/libraries/nccl
  kNcclFiles,         // simulator/libraries/nccl: mappings that ranks of one process share
  kLibraryHandles,    // simulator/libraries: what a program has made of a library
  kSimulatedMachine,  // simulator/driver
  kLeaf,              // any folder: with it held no other lock is taken
  kCount,
};

static_assert(static_cast<int>(LockOrder::kCount) <= 64, "a bit for each");

namespace lock_order {

#if defined(SPILLWAY_CHECK_LOCKS)
inline thread_local uint64_t held = 0;  // a bit for each order

inline void taking(LockOrder order) {
  const auto bit = uint64_t{1} << static_cast<unsigned>(order);
  if (held < bit) return;
  std::fprintf(stderr, "spillway: lock %u is taken while a lock of %#llx is held (base/lock_order.h)\n",
               static_cast<unsigned>(order), static_cast<unsigned long long>(held));
  std::abort();
}
inline void taken(LockOrder order) {
  held |= uint64_t{1} << static_cast<unsigned>(order);
}
inline void released(LockOrder order) {
  held &= ~(uint64_t{1} << static_cast<unsigned>(order));
}
#else
inline void taking(LockOrder) {}
inline void taken(LockOrder) {}
inline void released(LockOrder) {}
#endif

}  // namespace lock_order
}  // namespace spillway
