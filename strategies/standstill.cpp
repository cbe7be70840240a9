#include "strategies/standstill.h"

#include <algorithm>

#include "strategies/idle.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
// What is queued may take its time while others can go on; once they are held, only what came in between.
constexpr auto kMostWait = std::chrono::seconds(5);
constexpr auto kMostHeld = std::chrono::seconds(1);
}  // namespace

Standstill::Standstill(Allocator& allocator, Gate& gate, Clock::time_point deadline) : gate_(gate) {
  if (gate_.captures() != 0 || !wait_until_idle(allocator, std::min(deadline, Clock::now() + kMostWait)))
    return;
  const Clock::time_point end = Clock::now() + kMostHeld;
  closed_ = gate_.close(end);
  held_ = closed_ && gate_.captures() == 0 && wait_until_idle(allocator, end);
}

Standstill::~Standstill() {
  if (closed_) gate_.open();
}

}  // namespace spillway
