#include "strategies/unspill.h"

#include "allocator/tiers/tiers.h"
#include "base/mutex.h"
#include "strategies/quiesce/quiesce.h"

namespace spillway {
namespace {

constexpr unsigned kCallsBetweenLooks = 1024;
constexpr auto kMostTime = std::chrono::seconds(5);

void unspill_to(Allocator& allocator, Gate& gate, DeviceId device) {
  if (returnable_bytes(allocator, device) == 0) return;
  const Quiesce quiesce(allocator, gate, std::chrono::steady_clock::now() + kMostTime);
  if (quiesce.held())
    unspill(allocator, device);
  else
    postpone_return(allocator, device);
}

}  // namespace

void unspill_now_and_then(Allocator& allocator, Ladder& ladder) {
  thread_local unsigned calls = 0;
  if (++calls % kCallsBetweenLooks != 0 || Ladder::inside() || ladder.gate() == nullptr) return;
  static Mutex<LockOrder::kUnspill> one_at_a_time;
  if (!one_at_a_time.try_lock()) return;
  const Locked guard(one_at_a_time, kAdopt);
  for (int i = 0; i < Allocator::kMaxDevices; ++i) unspill_to(allocator, *ladder.gate(), DeviceId{i});
}

}  // namespace spillway
