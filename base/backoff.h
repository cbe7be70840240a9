// When what was refused is tried again: after a second, and after each refusal in a row after twice as long,
// a minute at most.
//
// Thread-safety: any thread. Ownership: a value. Errors: none. Times are one monotonic clock's, the caller's.
#pragma once
#include <algorithm>
#include <chrono>

#include "base/mutex.h"

namespace spillway {

class Backoff {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Now = Time (*)();
  static constexpr std::chrono::seconds kFirst{1}, kMost{60};

  // What was under way when an earlier one was refused counts as the same refusal.
  void refused(Time now) noexcept {
    const Locked guard(mutex_);
    if (now < until_) return;
    wait_ = wait_ == wait_.zero() ? kFirst : std::min(2 * wait_, kMost);
    until_ = now + wait_;
  }
  // It is not refused any more: the next time is the first one again.
  void served() noexcept {
    const Locked guard(mutex_);
    wait_ = {};
    until_ = {};
  }
  // Whether it is too early to try.
  bool waits(Time now) const noexcept {
    const Locked guard(mutex_);
    return now < until_;
  }

 private:
  mutable Mutex<LockOrder::kBackoff> mutex_;
  std::chrono::seconds wait_ SPILLWAY_GUARDED_BY(mutex_){};
  Time until_ SPILLWAY_GUARDED_BY(mutex_){};
};

}  // namespace spillway
