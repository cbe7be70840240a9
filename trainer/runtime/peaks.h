// The most that devices held: since a step began, and since the run did.
//
// Spillway counts peaks since they were last reset. A step's are read that way, and what the resets take
// away is kept here.
//
// Thread-safety: one thread. Ownership: borrows the core. Errors: a device that the core does not know, or
// every device without a core, is left out. Units: bytes.
#pragma once
#include <vector>

#include "trainer/runtime/core.h"

namespace spillway::trainer {

class PeakWatch {
 public:
  explicit PeakWatch(const Core& core) : core_(core) {}

  void watch(size_t devices);                    // from here on, of devices 0 to `devices` - 1
  void begin_step();                             // peaks count anew from here
  std::vector<spillway_memory> of_step() const;  // what is held now, and the peaks since `begin_step`
  // The same with the peaks since `watch`. `now`: of `of_step`.
  std::vector<spillway_memory> of_run(std::vector<spillway_memory> now) const;

 private:
  struct Peaks {
    uint64_t live = 0, reserved = 0, allocated = 0;
  };
  static void raise(Peaks* peaks, const spillway_memory& memory);

  const Core& core_;
  std::vector<Peaks> run_;  // until the step began, by device
};

}  // namespace spillway::trainer
