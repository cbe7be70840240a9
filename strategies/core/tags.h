// What the program says about itself: phases, steps, pins.
//
// Thread-safety: every member may be called from any thread. Ownership: phase names live for ever; their
// number is that of the program's own.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "allocator/tiers/choice/pins.h"
#include "base/mutex.h"

namespace spillway {

class Tags {
 public:
  // The phase of the calling thread, or the process's, or "".
  static const char* phase();
  void set_phase(const char* name);

  void pin(uint64_t address, uint64_t bytes);
  bool unpin(uint64_t address);  // false: it was not pinned
  Pins pins();

  struct Step {
    uint64_t step = 0, attempt = 0, plan_hash = 0;
  };
  void begin_step(const Step& step);
  Step current_step();

 private:
  struct Pin {
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  Mutex<LockOrder::kTags> mutex_;
  std::set<std::string> phases_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<uint64_t, Pin> pins_ SPILLWAY_GUARDED_BY(mutex_);
  Step step_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
