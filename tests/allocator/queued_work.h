// Kernels that a test has queued: whether one that others may not disturb still touches a range. Events are
// recorded and asked for by functions that the allocator does not call, so that failures injected into those
// do not reach it.
//
// Thread-safety: none. Ownership: the table must outlive it.
#pragma once
#include <deque>
#include <vector>

#include "tests/allocator/simulated.h"

namespace spillway::testing {

class QueuedWork {
 public:
  explicit QueuedWork(const driver::Table& table) : table_(table), events_(kMost + 1) {
    for (CUevent& event : events_) EXPECT_EQ(table_.cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    start_ = events_.back();
    EXPECT_EQ(table_.cuEventRecordWithFlags(start_, nullptr, 0), CUDA_SUCCESS);
    idle_.assign(events_.begin(), events_.end() - 1);
  }
  ~QueuedWork() {
    for (CUevent event : events_) table_.cuEventDestroy(event);
  }
  QueuedWork(const QueuedWork&) = delete;
  QueuedWork& operator=(const QueuedWork&) = delete;

  // So much is already queued that no more can be followed.
  bool full() {
    while (!uses_.empty() && done(uses_.front())) {
      idle_.push_back(uses_.front().event);
      uses_.pop_front();
    }
    return idle_.empty();
  }

  // Work on [begin, end) was queued on `stream` just now. REQUIRES: not full().
  void follow(StreamId stream, uint64_t begin, uint64_t end) {
    CUevent event = idle_.back();
    idle_.pop_back();
    EXPECT_EQ(table_.cuEventRecordWithFlags(event, reinterpret_cast<CUstream>(stream), 0), CUDA_SUCCESS);
    uses_.push_back({stream, begin, end, event});
  }

  // Whether work on another stream than `stream` still touches [begin, end).
  bool touches(StreamId stream, uint64_t begin, uint64_t end) {
    for (const Use& use : uses_)
      if (use.stream != stream && use.begin < end && begin < use.end && !done(use)) return true;
    return false;
  }

 private:
  static constexpr size_t kMost = 64;
  struct Use {
    StreamId stream;
    uint64_t begin, end;
    CUevent event;
  };

  bool done(const Use& use) {
    float ms = 0;
    return table_.cuEventElapsedTime(&ms, start_, use.event) != CUDA_ERROR_NOT_READY;
  }

  const driver::Table& table_;
  std::vector<CUevent> events_, idle_;
  CUevent start_ = nullptr;
  std::deque<Use> uses_;
};

}  // namespace spillway::testing
