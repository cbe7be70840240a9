#include "strategies/unspill_when_due.h"

#include <atomic>
#include <cstdio>

#include "allocator/tiers/tiers.h"
#include "base/mutex.h"
#include "strategies/quiesce/quiesce.h"
#include "strategies/spill_offer.h"

namespace spillway {
namespace {

constexpr unsigned kCallsBetweenLooks = 1024;
constexpr auto kMostTime = std::chrono::seconds(5);

// One step may have been slow for reasons of its own.
bool is_too_slow(const Slowdown& slowdown, double most) {
  constexpr uint64_t kLeastSteps = 2;
  return most != 0 && slowdown.steps >= kLeastSteps && slowdown.now > most;
}

void say_once(const Slowdown& slowdown, double most) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  char measured[64] = "";
  if (slowdown.measured != 0)
    std::snprintf(measured, sizeof measured, ", %.1f were predicted", slowdown.predicted);
  std::fprintf(
      stderr,
      "spillway: the program's steps take %.1f times as long because of memory that was moved%s, and "
      "--max-slowdown allows %.1f; it goes on, as there is no room for that memory\n",
      slowdown.now, measured, most);
}

// This and the next: whether something came, or may yet.
bool unspill_to(Allocator& allocator, Gate& gate, DeviceId device) {
  if (returnable_bytes(allocator, device) == 0) return false;
  const Quiesce quiesce(allocator, gate, std::chrono::steady_clock::now() + kMostTime);
  if (quiesce.held()) return unspill(allocator, device) != 0;
  postpone_return(allocator, device);
  return true;
}

bool exchange_on(Allocator& allocator, Gate& gate, DeviceId device, const SpillLimits& limits) {
  const SpillPlace where{.tier = Tier::kHost,
                         .most_bytes = host_room_bytes(allocator, limits, device, Kept::kStays)};
  if (exchangeable_bytes(allocator, device, where) == 0) return false;
  const Quiesce quiesce(allocator, gate, std::chrono::steady_clock::now() + kMostTime);
  return !quiesce.held() || exchange(allocator, device, where) != 0;
}

void look_at(Allocator& allocator, Gate& gate, DeviceId device, const SpillLimits& limits) {
  if (!allocator.uses(device)) return;
  const Slowdown slowdown = slowdown_of(allocator, device);
  const bool slow = is_too_slow(slowdown, limits.most_slowdown);
  hurry_returns(allocator, device, slow);
  if (unspill_to(allocator, gate, device) || !slow) return;
  if (!exchange_on(allocator, gate, device, limits)) say_once(slowdown, limits.most_slowdown);
}

}  // namespace

void unspill_now_and_then(Allocator& allocator, Ladder& ladder, SpillLimits (*limits)()) {
  thread_local unsigned calls = 0;
  if (++calls % kCallsBetweenLooks != 0 || Ladder::inside() || ladder.gate() == nullptr) return;
  static Mutex<LockOrder::kUnspill> one_at_a_time;
  if (!one_at_a_time.try_lock()) return;
  const Locked guard(one_at_a_time, kAdopt);
  const SpillLimits now = limits();
  for (int i = 0; i < Allocator::kMaxDevices; ++i) look_at(allocator, *ladder.gate(), DeviceId{i}, now);
}

}  // namespace spillway
