// Gives idle pages back to the driver, which then has to create others: dearer than stitching, and the way
// when pages may not be moved or the driver must have them.
#include "allocator/allocator.h"
#include "allocator/costs.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

class ReleaseCache final : public Strategy {
 public:
  explicit ReleaseCache(Allocator& allocator) : allocator_(allocator) {}
  StrategyInfo info() const noexcept override {
    return {"release_cache", Guarantee::kBitExact, kNeedsNothing, kServesAllocator | kServesDriverCallers};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    if (request.event.source == Source::kDriverCaller) return whole_cache(request.event.device);
    const ReclaimEstimate estimate = request.estimate_reclaim(IdlePages::kGiveBack);
    return {estimate.useful_bytes,
            estimate.pages * costs::kReplaceUs + (estimate.waits ? costs::kDrainUs : 0),
            /*counted=*/true, Takes::kIdle};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const bool of_driver = request.event.source == Source::kDriverCaller;
    return {of_driver ? allocator_.empty_cache(request.event.device) : request.reclaim(IdlePages::kGiveBack),
            false, "gave idle pages to the driver"};
  }

 private:
  // What another library's call needs is not known to the page: all that is idle goes.
  Offer whole_cache(DeviceId device) noexcept {
    Memory memory;
    if (!allocator_.uses(device) || allocator_.memory(device, &memory) != Status::kOk) return {};
    const uint64_t pages = memory.cached / costs::kCostPageBytes + 1;
    return {memory.cached, pages * costs::kReplaceUs + costs::kDrainUs, /*counted=*/true, Takes::kIdle};
  }

  Allocator& allocator_;
};

}  // namespace

std::unique_ptr<Strategy> make_release_cache(Allocator& allocator) {
  return std::make_unique<ReleaseCache>(allocator);
}

}  // namespace spillway
