// An engine on a thread of its own, which rests while there is nothing to do.
//
// Thread-safety: any thread. Callbacks of a job run on the engine's thread and must not call back into it.
// Errors: after one of LibTorch's that is not about memory `failure` says which; all jobs have ended then,
// and new ones end at once.
#pragma once
#include <condition_variable>
#include <thread>

#include "base/mutex.h"
#include "trainer/serve/engine/engine.h"

namespace spillway::trainer::serve {

class EngineThread {
 public:
  // `stopped_by_itself` is called on the thread when it fails.
  EngineThread(std::unique_ptr<Engine> engine, std::function<void()> stopped_by_itself);
  // All that is left is cancelled.
  ~EngineThread();

  // A ticket, for `cancel`.
  uint64_t submit(Job job);
  void cancel(uint64_t ticket);

  EngineStats stats() const;
  std::string failure() const;

 private:
  void run();
  bool take_orders();  // false: to be stopped

  mutable Mutex<LockOrder::kLeaf> mutex_;
  std::condition_variable_any wake_;
  std::vector<std::pair<uint64_t, Job>> submitted_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<uint64_t> cancelled_ SPILLWAY_GUARDED_BY(mutex_);
  uint64_t next_ticket_ SPILLWAY_GUARDED_BY(mutex_) = 1;
  bool stop_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::string failure_ SPILLWAY_GUARDED_BY(mutex_);
  EngineStats stats_ SPILLWAY_GUARDED_BY(mutex_);
  // The thread's own.
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, uint64_t> ids_;  // of the engine, by ticket
  std::function<void()> stopped_by_itself_;
  std::thread thread_;  // last: it starts when all else is there
};

}  // namespace spillway::trainer::serve
