// The request fits only in pieces: takes whole idle pages from where they are and maps them together behind
// one range.
#include "allocator/costs.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

class Stitch final : public Strategy {
 public:
  StrategyInfo info() const noexcept override { return {"stitch", Guarantee::kBitExact, kNeedsNothing}; }
  Offer offer(const PendingRequest& request) noexcept override {
    const ReclaimEstimate estimate = request.estimate_reclaim(IdlePages::kKeep);
    return {estimate.useful_bytes, estimate.pages * costs::kRemapUs + (estimate.waits ? costs::kDrainUs : 0),
            /*counted=*/true, Takes::kIdle};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    return {request.reclaim(IdlePages::kKeep), false, "moved idle pages behind one range"};
  }
};

}  // namespace

std::unique_ptr<Strategy> make_stitch() {
  return std::make_unique<Stitch>();
}

}  // namespace spillway
