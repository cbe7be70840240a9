// What the probe knows of this process. One instance, behind one lock; never destroyed, because tensors and
// threads outlive static destruction.
//
// Thread-safety: `mutex` guards every member but `forked` and `dirty`. Nothing that waits is called with it
// held. Units: bytes.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "libtorch/rehearsal/probe/sites.h"
#include "libtorch/rehearsal/site_table.h"

namespace spillway::rehearsal {

// A request that the allocator could not serve.
struct Failure {
  int device = 0;
  uint64_t requested = 0, allocated = 0, reserved = 0, device_free = 0;
  uint64_t limit = 0;  // what the allocator may use, as it told the observer: the card or the set fraction
  uint64_t event = 0, step = 0;
  Site site = 0;
  std::vector<Holding> held;
};

// How the program ended, as far as Python saw it.
struct Uncaught {
  std::string type, message;
  bool out_of_memory = false;  // PyTorch's OutOfMemoryError, or raised because of one
  bool names_memory = false;   // the text of another error that a refused request makes
};

struct Read {
  uint64_t count = 0, bytes = 0;
};
enum class ReadKind {
  kShape,
  kValue,
  kCopy,    // a small one may decide something
  kBulk,    // data
  kNumber,  // for printing, or followed by libtorch/rehearsal/python/numbers.py
  kBranch,  // no read: a number that was followed decided something here
};

struct State {
  Mutex<LockOrder::kRehearsalState> mutex;
  std::deque<Ledger> ledgers SPILLWAY_GUARDED_BY(mutex);  // by device; grows without moving
  Sites sites SPILLWAY_GUARDED_BY(mutex);
  std::vector<Failure> failures SPILLWAY_GUARDED_BY(mutex);  // the first kMostFailures
  uint64_t failure_count SPILLWAY_GUARDED_BY(mutex) = 0, steps SPILLWAY_GUARDED_BY(mutex) = 0;
  uint64_t checkpointed_models SPILLWAY_GUARDED_BY(mutex) = 0;  // by the probe
  std::map<std::pair<Site, ReadKind>, Read> reads SPILLWAY_GUARDED_BY(mutex);
  Uncaught uncaught SPILLWAY_GUARDED_BY(mutex);
  std::string problem SPILLWAY_GUARDED_BY(mutex);  // why the probe sees no allocations, "" if it does
  std::string allocator SPILLWAY_GUARDED_BY(mutex);
  // That PyTorch has kernels for: "sm_75 sm_80 compute_120", "" if that is not known.
  std::string architectures SPILLWAY_GUARDED_BY(mutex);
  // Of the native allocator: it may then ask twice before it empties its cache.
  bool expandable_segments SPILLWAY_GUARDED_BY(mutex) = false, splits_are_limited
                                                               SPILLWAY_GUARDED_BY(mutex) = false;
  bool has_python SPILLWAY_GUARDED_BY(mutex) = false, ended_by_steps SPILLWAY_GUARDED_BY(mutex) = false,
                  complete SPILLWAY_GUARDED_BY(mutex) = false;
  std::atomic<bool> forked{false}, dirty{true};

  Ledger& ledger(int device) SPILLWAY_REQUIRES(mutex) {
    while (ledgers.size() <= static_cast<size_t>(device)) ledgers.emplace_back();
    return ledgers[static_cast<size_t>(device)];
  }
};

constexpr size_t kMostFailures = 16;

State& state();

// What the allocator holds of `device` now; zeros where it cannot tell.
Levels levels_of(int device);

}  // namespace spillway::rehearsal
