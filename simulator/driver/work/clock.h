// The virtual clock. Host time decides nothing: every driver call costs a fixed virtual time, waits move the
// clock to what they wait for, and submitted work occupies an interval on its stream and, for copies, on a
// copy engine. The work itself was done when it was submitted, which is one of the orders that the streams
// allow.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: none. Errors: none. Units:
// virtual ns.
#pragma once
#include <algorithm>
#include <cstdint>

namespace spillway::simulator {

struct Interval {
  uint64_t start = 0, end = 0;
};

// Something that does one piece of work at a time: a stream, a copy engine.
struct Lane {
  uint64_t free_at = 0;
};

class Clock {
 public:
  uint64_t now() const { return now_; }
  void advance(uint64_t ns) { now_ += ns; }
  void wait_until(uint64_t time) { now_ = std::max(now_, time); }
  // The host waited for all of a stream, as a program does that reads a result, and not to throttle itself.
  void wait_for_all_until(uint64_t time) {
    wait_until(time);
    waited_ = now_;
  }
  uint64_t waited() const { return waited_; }

  // A thread that only looks on has seen what is over at `time`. The program may act on it, but the clock
  // does not move: when such a thread looks is up to the host.
  void witness(uint64_t time) { witnessed_ = std::max(witnessed_, time); }
  uint64_t known() const { return std::max(now_, witnessed_); }

 private:
  uint64_t now_ = 0, waited_ = 0, witnessed_ = 0;
};

}  // namespace spillway::simulator
