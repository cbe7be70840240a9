#include "strategies/quiesce/quiesce.h"

#include <algorithm>

#include "strategies/quiesce/progress_watch.h"
#include "strategies/quiesce/wait_until_idle.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
// For a call that is under way: then others are let through for a moment, of which one may be what it waits
// for.
constexpr auto kOneTry = std::chrono::seconds(1);

// False at once where the gate cannot be closed at all.
bool close(Gate& gate, ProgressWatch& watch, Clock::time_point deadline) {
  for (;;) {
    const Clock::time_point end = std::min(deadline, Clock::now() + kOneTry);
    if (gate.captures() != 0) return false;
    if (gate.close(end)) return true;
    if (Clock::now() < end || end == deadline || watch.stands_still()) return false;
  }
}
}  // namespace

Quiesce::Quiesce(Allocator& allocator, Gate& gate, Clock::time_point deadline) : gate_(gate) {
  ProgressWatch watch(allocator);
  closed_ = close(gate_, watch, deadline);
  // No capture begins while others are held, so that the wait breaks none.
  held_ = closed_ && gate_.captures() == 0 &&
          wait_until_idle(allocator, deadline, [&watch] { return watch.stands_still(); });
}

Quiesce::~Quiesce() {
  if (closed_) gate_.open();
}

}  // namespace spillway
