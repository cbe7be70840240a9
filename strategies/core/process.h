// The one core in a process: allocator, ladder, trace and tags behind spillway.h and core.h.
//
// Thread-safety: every member may be called from any thread. Ownership: made on first use and never
// destroyed, because tensors and threads may outlive every static object. Errors: a spillway_status and the
// thread's last error.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "allocator/allocator.h"
#include "base/mutex.h"
#include "strategies/core/core.h"
#include "strategies/core/driver_callers.h"
#include "strategies/core/environment.h"
#include "strategies/core/tags.h"
#include "strategies/ladder/ladder.h"
#include "strategies/sites/recorder.h"

namespace spillway {

class Process {
 public:
  static Process& get();

  // Idempotent: the first call decides, a failed one may be repeated.
  spillway_status start();
  // Null until started.
  Allocator* allocator() const { return allocator_.load(std::memory_order_acquire); }
  Ladder* ladder() const { return ladder_.load(std::memory_order_acquire); }
  const char* trace_path() const;
  Tags& tags() { return tags_; }
  trace::Trace* trace() const { return allocator() == nullptr ? nullptr : allocator()->trace(); }
  // A record of the process's, not of a device's. Nothing without a trace.
  void write(trace::Record record);
  // Before the first request, and only where there is a gate: without one, what is idle beside a part in use
  // of a large handle cannot be had back.
  void use_large_handles();
  // Whether memory in use may be moved off the devices.
  bool may_spill() const {
    const bool host = environment_.spill_to_host && environment_.host_budget_bytes != 0;
    const bool peer = environment_.spill_to_peer && environment_.peer_budget_bytes != 0;
    return (host || peer) && ladder()->gate() != nullptr;
  }
  // What the strategies that move memory in use keep to.
  double most_slowdown() const { return most_slowdown_; }
  SpillLimits spill_limits() const;
  // What Spillway's own requests leave of a large card where nothing says how much.
  uint64_t left_to_libraries() const {
    constexpr uint64_t kLeft = uint64_t{512} << 20;
    return environment_.reserves_by_itself ? kLeft : 0;
  }
  bool registered_allowed() const { return environment_.registered; }
  // Null until started.
  DriverCallers* driver_callers() const { return driver_callers_.load(std::memory_order_acquire); }
  // Null: no stacks are taken.
  SiteRecorder* sites() const { return sites_.load(std::memory_order_acquire); }
  // From now on; null: nowhere.
  void count_incidents(spillway_incident_totals* totals);
  // Those counted until now; zeros where nobody counts.
  spillway_incident_totals incidents();

 private:
  spillway_status start_locked() SPILLWAY_REQUIRES(mutex_);
  // The built-in ones that the settings name.
  void add_strategies(Allocator& allocator, Ladder* ladder);

  Mutex<LockOrder::kProcessStart> mutex_;
  Environment environment_;
  double most_slowdown_ = 0;
  std::unique_ptr<trace::Trace> trace_;
  std::atomic<Allocator*> allocator_{nullptr};
  std::atomic<Ladder*> ladder_{nullptr};
  std::atomic<DriverCallers*> driver_callers_{nullptr};
  std::atomic<SiteRecorder*> sites_{nullptr};
  spillway_incident_totals* totals_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  Tags tags_;
};

// Tells the allocator which streams it may ask about, as far as the process knows; see streams.h.
void follow_program_streams(Allocator& allocator);

// Sets the calling thread's last error and returns `status`.
spillway_status refuse(spillway_status status, std::string_view text);
const char* last_error();
spillway_status to_c(Status status);
// Starts if need be; false: the last error says why.
bool started(spillway_status* status);

void fill_memory(const Memory& memory, int32_t device, spillway_memory* out);
// A verdict, the request, what was tried: at most `size` bytes with the terminating zero.
std::string verdict(const Failure& failure, const std::string& story);

}  // namespace spillway
