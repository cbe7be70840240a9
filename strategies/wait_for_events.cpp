// Blocks that were freed but are still in use on other streams: waits for just as many of their events as the
// request needs, in the order in which they were recorded.
#include "allocator/costs.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

class WaitForEvents final : public Strategy {
 public:
  StrategyInfo info() const noexcept override {
    return {"wait_for_events", Guarantee::kBitExact, kNeedsNothing};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    return {request.pending_bytes(), costs::kEventUs, /*counted=*/true, Takes::kIdle};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    return {request.wait_for_events(), false, "waited for events of other streams"};
  }
};

}  // namespace

std::unique_ptr<Strategy> make_wait_for_events() {
  return std::make_unique<WaitForEvents>();
}

}  // namespace spillway
