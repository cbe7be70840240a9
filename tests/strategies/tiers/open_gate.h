// A gate for programs of one thread, which never launches while it is closed.
#pragma once
#include "allocator/tiers/gate.h"

namespace spillway::testing {

struct OneThreadsGate final : Gate {
  bool close(std::chrono::steady_clock::time_point) noexcept override {
    closed += can_close ? 1 : 0;
    return can_close;
  }
  void open() noexcept override { ++opened; }
  uint32_t captures() noexcept override { return captured; }

  bool can_close = true;
  uint32_t captured = 0;
  int closed = 0, opened = 0;
};

}  // namespace spillway::testing
