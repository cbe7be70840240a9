// PyTorch's watchdog of collectives: a thread that looks every 100 ms which of them have ended. What a
// program gave to a collective and did not wait for stays allocated until the watchdog has seen its end and
// the program makes its next collective. When the watchdog looks is up to the host, so two runs would
// allocate differently.
//
// Here it sees what was over when the host last waited for a whole stream (or, every 100 ms of the virtual
// clock, what is over then), and a collective begins when the watchdog has seen all of that. So runs repeat,
// and are what a GPU shows on which a step is long beside those 100 ms. A program that waits for each of its
// collectives leaves nothing to the watchdog: with `awaits_watchdog` false its short steps need not wait for
// those 100 ms of real time.
//
// Thread-safety: used under the simulator's lock, which `await` gives up meanwhile. Ownership: none. Errors:
// none: a watchdog that does not come is waited for once. Units: virtual ns.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace spillway::simulator {

// Whether the calling thread is one.
bool is_watchdog();
// Whether it is one on which PyTorch runs backward passes: it allocates, and so asks for events, before it
// has put any work on a stream.
bool is_backward_thread();

// Whether it is Spillway's own that pins host memory ahead: beside the program, whose time it does not take.
// When it runs is up to the host, so that its calls move no clock.
bool is_beside();

class Watchdog {
 public:
  // For a watchdog: whether it sees what is over at `time`. A program in which nothing happens any more may
  // be waiting for it: then it sees what is true.
  bool may_see(uint64_t time);
  // The calling watchdog has found work on `stream` that was over at `time`; what it does about that is done
  // when it calls again.
  void found(uint64_t stream, uint64_t time);
  void calls_again();

  // A collective was put on `stream` that is over at `end`. On a default stream (0) PyTorch keeps nothing for
  // it. Nothing is awaited with `awaits_watchdog` false.
  void expect(uint64_t stream, uint64_t end);
  // Before the next one, on whichever stream: shows the watchdog what is over, and waits until it has seen of
  // it what is expected. The lock of the thread's call is given up meanwhile.
  void await();

  void forget(uint64_t stream) { streams_.erase(stream); }

 private:
  struct Watched {
    std::deque<uint64_t> ends;  // not seen yet
    uint64_t seen = 0;
    bool nobody_looks = false;
  };
  struct Finding {
    uint64_t stream = 0, time = 0;
  };
  static Finding& finding();  // of the calling thread
  bool has_seen(const Finding& awaited) const;
  std::vector<Finding> take_shown();

  std::map<uint64_t, Watched> streams_;
  uint64_t shown_ = 0;
  std::condition_variable_any changed_;
};

}  // namespace spillway::simulator
