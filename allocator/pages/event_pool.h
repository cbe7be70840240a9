// The driver's events, each of which is used again and again.
//
// Thread-safety: any thread, in the device's context. Ownership: of events that were put back, until `end`.
// Errors: the driver's.
#pragma once
#include <cuda.h>

#include <utility>
#include <vector>

#include "base/mutex.h"
#include "driver/table.h"

namespace spillway {

class EventPool {
 public:
  // `flags`: of the events, CU_EVENT_DEFAULT or CU_EVENT_DISABLE_TIMING.
  EventPool(const driver::Table& table, unsigned flags) : table_(table), flags_(flags) {}

  // Behind what is queued on `stream`. Null with the error when none could be made or recorded.
  CUevent record(CUstream stream, CUresult* result) {
    CUevent event = take();
    *result = event != nullptr ? CUDA_SUCCESS : table_.cuEventCreate(&event, flags_);
    if (*result != CUDA_SUCCESS) return nullptr;
    *result = table_.cuEventRecord(event, stream);
    if (*result == CUDA_SUCCESS) return event;
    put_back(event);
    return nullptr;
  }
  CUevent record(CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    return record(stream, &result);
  }
  // Null is passed over.
  void put_back(CUevent event) {
    const Locked guard(mutex_);
    if (event != nullptr) spare_.push_back(event);
  }
  // From one event to the other, which are past; negative where that cannot be read.
  float ms_between(CUevent begin, CUevent end) const {
    float ms = 0;
    return table_.cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS ? ms : -1;
  }
  // What was put back is gone. Not in a forked child.
  void end() {
    const Locked guard(mutex_);
    for (const CUevent event : std::exchange(spare_, {})) table_.cuEventDestroy(event);
  }

 private:
  CUevent take() {
    const Locked guard(mutex_);
    if (spare_.empty()) return nullptr;
    CUevent event = spare_.back();
    spare_.pop_back();
    return event;
  }

  const driver::Table& table_;
  const unsigned flags_;
  Mutex<LockOrder::kDeviceEvents> mutex_;
  std::vector<CUevent> spare_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
