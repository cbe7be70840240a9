// A moment in which nothing uses device memory: no work is under way on any device, the gate is closed, and
// no stream is being captured.
//
// Thread-safety: any thread; one at a time, for which the others wait. Errors: `held` is false at the
// deadline, or where what is queued stands still for some seconds.
#pragma once
#include "allocator/allocator.h"
#include "allocator/tiers/gate.h"

namespace spillway {

class Quiesce {
 public:
  Quiesce(Allocator& allocator, Gate& gate, std::chrono::steady_clock::time_point deadline);
  ~Quiesce();
  Quiesce(const Quiesce&) = delete;
  Quiesce& operator=(const Quiesce&) = delete;
  bool held() const { return held_; }

 private:
  Gate& gate_;
  bool closed_ = false, held_ = false;
};

}  // namespace spillway
