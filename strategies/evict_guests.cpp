#include "strategies/evict_guests.h"

#include <algorithm>

#include "allocator/costs.h"
#include "strategies/quiesce/quiesce.h"
#include "strategies/spill_offer.h"

namespace spillway {
namespace {

// Everything stands still for it, so more goes than is needed.
constexpr uint64_t kAhead = 256 << 20;

uint64_t evict(Allocator& allocator, const SpillLimits& limits, DeviceId device, uint64_t bytes) {
  return evict_guests(allocator, device, bytes + kAhead,
                      host_room_bytes(allocator, limits, device, Kept::kStays));
}

class EvictGuests final : public Strategy {
 public:
  EvictGuests(Allocator& allocator, const SpillLimits& limits) : allocator_(allocator), limits_(limits) {}
  StrategyInfo info() const noexcept override {
    return {"evict_guests", Guarantee::kBitExact, kNeedsIdleDevice | kNeedsGate,
            kServesAllocator | kServesDriverCallers};
  }
  // Priced without what exchanging pages takes: before anything of the device's own goes, its guests do.
  Offer offer(const PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    const uint64_t guests = std::min(guest_bytes(allocator_, event.device), event.short_bytes);
    return {guests, guests / costs::kHostBytesPerUs};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    return {evict(allocator_, limits_, event.device, event.short_bytes), false,
            "sent other devices' blocks away"};
  }

 private:
  Allocator& allocator_;
  const SpillLimits limits_;
};

}  // namespace

std::unique_ptr<Strategy> make_evict_guests(Allocator& allocator, const SpillLimits& limits) {
  return std::make_unique<EvictGuests>(allocator, limits);
}

uint64_t evict_guests_for_others(Allocator& allocator, Ladder& ladder, const SpillLimits& limits,
                                 DeviceId device, uint64_t bytes,
                                 std::chrono::steady_clock::time_point deadline) {
  if (ladder.gate() == nullptr || guest_bytes(allocator, device) == 0) return 0;
  const Quiesce quiesce(allocator, *ladder.gate(), deadline);
  return quiesce.held() ? evict(allocator, limits, device, bytes) : 0;
}

}  // namespace spillway
