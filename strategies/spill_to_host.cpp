// The coldest blocks' memory goes to pinned host memory at the same address, where kernels can still use it.
#include "strategies/spill_offer.h"

namespace spillway {
namespace {

class SpillToHost final : public Strategy {
 public:
  SpillToHost(Allocator& allocator, const SpillLimits& limits) : allocator_(allocator), limits_(limits) {}
  StrategyInfo info() const noexcept override {
    return {"spill_to_host", Guarantee::kBitExact, kNeedsIdleDevice | kNeedsGate};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    const SpillPlace where = place(request.event, Kept::kCanBeTaken);
    const SpillEstimate estimate = request.estimate_spill(where);
    if (estimate.needed_bytes == 0) return {};
    if (estimate.movable_bytes >= estimate.needed_bytes && estimate.useful_bytes == 0)
      return refused("%s must go, and of the budget of host memory %s are left", estimate.needed_bytes,
                     where.most_bytes);
    return offer_of(estimate, Tier::kHost, limits_.most_slowdown);
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const DeviceId device = request.event.device;
    const SpillEstimate estimate = request.estimate_spill(place(request.event, Kept::kStays));
    if (estimate.useful_bytes == 0) release_host_memory(allocator_, device);
    return {request.spill(place(request.event, Kept::kStays)).bytes, false,
            "moved cold blocks to host memory"};
  }

 private:
  SpillPlace place(const OomEvent& event, Kept others) const {
    return {.tier = Tier::kHost, .most_bytes = host_room_bytes(allocator_, limits_, event.device, others)};
  }

  Allocator& allocator_;
  const SpillLimits limits_;
};

}  // namespace

std::unique_ptr<Strategy> make_spill_to_host(Allocator& allocator, const SpillLimits& limits) {
  return std::make_unique<SpillToHost>(allocator, limits);
}

}  // namespace spillway
