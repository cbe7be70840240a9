// One thread that does what may have to wait for a lock of somebody else's, so that the thread whose request
// failed can stop waiting. It may call the driver: what it does is a DriverSpan, which the process's exit
// waits a moment for.
//
// Thread-safety: any thread. Ownership: never destroyed; what it was given to do may outlive the wait for it.
// Errors: false where no thread can be made, where it is still busy with what was not waited for, and from
// the process's exit on, when nothing is done any more.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>

#include "base/mutex.h"

namespace spillway {

class DeadlineWorker {
 public:
  using Stop = std::function<bool()>;

  // The one of `Owner`, a type that names who has it; its thread may outlive every static object.
  template <class Owner>
  static DeadlineWorker& of() {
    static auto* const made = new DeadlineWorker;
    return *made;
  }

  // Does `work` on the worker's thread; true when it has ended before `deadline`, and before `stop`, asked
  // every few milliseconds, says so. Otherwise it goes on, and until it ends nothing else is accepted.
  bool run(std::function<void()> work, std::chrono::steady_clock::time_point deadline,
           const Stop& stop = nullptr);
  // Waits for what it is busy with first.
  bool run_when_free(std::function<void()> work, std::chrono::steady_clock::time_point deadline,
                     const Stop& stop = nullptr);

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  bool begin(std::function<void()> work, Deadline deadline, const Stop& stop) SPILLWAY_REQUIRES(mutex_);
  bool is_free_by(Deadline deadline, const Stop& stop) SPILLWAY_REQUIRES(mutex_);
  // Whether the piece of work of that number has ended by then.
  bool wait_for(uint64_t number, Deadline deadline) SPILLWAY_REQUIRES(mutex_);
  std::function<void()> next_work();
  void serve();

  Mutex<LockOrder::kDeadlineWorker> mutex_;
  std::condition_variable_any changed_;
  bool started_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool busy_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool done_ SPILLWAY_GUARDED_BY(mutex_) = false;
  // Pieces of work.
  uint64_t begun_ SPILLWAY_GUARDED_BY(mutex_) = 0, ended_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::function<void()> work_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
