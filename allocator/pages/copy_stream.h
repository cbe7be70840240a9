// A device's copies, on a stream of Spillway's own, and its clock.
//
// Thread-safety: any thread, in the device's context, without the heap's lock. Ownership: of the stream and
// the events, until `end`. Errors: CUresult. Units: bytes, microseconds.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "allocator/pages/event_pool.h"
#include "base/mutex.h"
#include "driver/table.h"

namespace spillway {

class CopyStream {
 public:
  explicit CopyStream(const driver::Table& table) : table_(table), events_(table, CU_EVENT_DEFAULT) {}

  // A copy that is under way: events before and after it, null where none could be recorded.
  struct Copy {
    CUevent begun = nullptr, over = nullptr;
  };
  // In order.
  CUresult copy(uint64_t to, uint64_t from, uint64_t bytes, Copy* copy);
  // Waits for it and takes its events back. `us`: what it alone took; 0 where that cannot be read.
  CUresult wait(Copy* copy, double* us);
  // The device's clock since it was first read, when the copies queued until now are over; 0 where it cannot
  // be read.
  uint64_t time_us();
  void end();

 private:
  CUresult stream(CUstream* out);
  CUresult wait_for_all();
  bool record_clock(CUevent* event, CUstream stream);  // made when first needed

  const driver::Table& table_;
  EventPool events_;
  Mutex<LockOrder::kDeviceStream> mutex_;  // also while the clock's event is waited for
  CUstream stream_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  CUevent clock_start_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  CUevent clock_now_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace spillway
