#include "strategies/quiesce/quiesce.h"

#include <algorithm>

#include "strategies/quiesce/wait_until_idle.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
// For what is queued: others are held meanwhile, so that none of them begins a capture that a wait would
// break.
constexpr auto kMostWait = std::chrono::seconds(3);
}  // namespace

Quiesce::Quiesce(Allocator& allocator, Gate& gate, Clock::time_point deadline) : gate_(gate) {
  closed_ = gate_.captures() == 0 && gate_.close(deadline);
  held_ = closed_ && gate_.captures() == 0 &&
          wait_until_idle(allocator, std::min(deadline, Clock::now() + kMostWait));
}

Quiesce::~Quiesce() {
  if (closed_) gate_.open();
}

}  // namespace spillway
