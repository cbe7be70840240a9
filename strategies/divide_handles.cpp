// Handles of several pages that are partly in use become single pages, so that what is idle of them can serve
// others.
#include "allocator/costs.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

class DivideHandles final : public Strategy {
 public:
  StrategyInfo info() const noexcept override {
    return {"divide_handles", Guarantee::kBitExact, kNeedsIdleDevice | kNeedsGate};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    const DivisionEstimate estimate = request.estimate_division();
    return {estimate.useful_bytes,
            estimate.pages * (costs::kCreateUs + costs::kRemapUs) +
                estimate.handles * (costs::kUnmapUs + costs::kReleaseUs) + costs::kQuiesceUs,
            /*counted=*/true, Takes::kIdle};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    return {request.divide_handles(), false, "divided handles that are partly in use"};
  }
};

}  // namespace

std::unique_ptr<Strategy> make_divide_handles() {
  return std::make_unique<DivideHandles>();
}

}  // namespace spillway
