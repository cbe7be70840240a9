// The device's time of the program's steps: marks on the stream of its work, read when they are past. Nothing
// waits for them.
//
// Thread-safety: any thread, in the device's context, without the heap's lock. Ownership: of its events,
// until `end`. Errors: what cannot be marked or read is left out. Units: microseconds.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "allocator/pages/event_pool.h"
#include "allocator/tiers/steps/step_finder.h"
#include "allocator/tiers/steps/step_times.h"
#include "base/mutex.h"
#include "driver/table.h"

namespace spillway {

// At a boundary.
struct StepState {
  uint64_t order = 0;
  double link_us = 0;      // of all uses over links until then, as predicted
  double moved_us = 0;     // in which pages were exchanged, until then
  uint64_t moves = 0;      // such times
  bool elsewhere = false;  // something lies there
};

class StepClock {
 public:
  explicit StepClock(const driver::Table& table) : table_(table), events_(table, CU_EVENT_DEFAULT) {}

  // What was queued on `stream` until now belongs to the step that ends here.
  void mark(CUstream stream, StepBoundary boundary, const StepState& state);
  // The oldest step that is over and was not read yet.
  std::optional<StepSample> next();
  void end();

 private:
  struct Mark {
    CUevent event;
    StepBoundary boundary;
    StepState state;
  };
  static constexpr size_t kMostMarks = 16;  // a device that is farther behind gets no more

  std::optional<StepSample> step_between(const Mark& begin, const Mark& end) const;

  const driver::Table& table_;
  EventPool events_;
  Mutex<LockOrder::kStepClock> mutex_;
  std::deque<Mark> marks_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
