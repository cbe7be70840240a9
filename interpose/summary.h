// What the processes under `spillway run` have done so far: a file that each of them maps and writes as it
// goes, so that it is whole whatever ends them. The preloaded library writes it, `spillway run` reads it.
//
// Thread-safety: fields are atomics; a slot belongs to the process whose id it holds. Ownership: whoever made
// the file. Errors: a reader checks `magic` and `layout` before anything else. Units: bytes, microseconds.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "strategies/core/core.h"

namespace spillway::interpose {

enum class Mode : uint32_t { kObserve, kRescue, kReplace };

// What became of `replace` in a process.
enum class Replacement : uint32_t { kNotAsked, kWaiting, kDone, kRefused };

// In the ledger of the machine's processes.
enum class Membership : uint32_t { kNotAsked, kMember, kRefused };

// What a thread has called. Each has a line of its own, the last one's is for all that come later.
struct alignas(64) CallCounts {
  std::atomic<uint64_t> driver_calls, launches;
};
inline constexpr size_t kCountingThreads = 32;

struct ProcessSummary {
  std::atomic<int32_t> process;  // 0: the slot is free
  std::atomic<Mode> mode;
  std::atomic<Replacement> replacement;
  std::atomic<Membership> membership;
  // Where a CUDA runtime asked for the driver that is of a newer major version, that and the driver's
  // version.
  std::atomic<int32_t> runtime_major, driver_version;
  char program[64];    // its name, cut
  char note[256];      // why the replacement was refused
  char unlisted[256];  // what it called of the driver that the list does not have, by ", "; "" nothing
  char trace[512];     // its trace file, "" where there is none or its path is longer
  spillway_incident_totals incidents;
  std::atomic<uint32_t> counting_threads;
  CallCounts calls[kCountingThreads];
};

inline constexpr uint64_t kSummaryMagic = 0x79616c6c69707321;  // "!spillay"
inline constexpr size_t kSummarySlots = 1024;

struct SummaryFile {
  uint64_t magic;
  uint32_t layout;  // sizeof(ProcessSummary)
  uint32_t slots;
  std::atomic<uint64_t> without_slot;  // processes that found none free
  ProcessSummary processes[kSummarySlots];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

}  // namespace spillway::interpose
