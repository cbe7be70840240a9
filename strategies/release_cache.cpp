// Gives idle pages back to the driver, which then has to create others: dearer than stitching, and the way
// when pages may not be moved or the driver must have them.
#include "allocator/pages/reclaim.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

// As for stitching, and release 23 us and create 29 us for each page.
constexpr uint64_t kPageUs = 26 + 23 + 29 + 2 + 36, kDrainUs = 100, kPageBytes = 2 << 20;

class ReleaseCache final : public Strategy {
 public:
  explicit ReleaseCache(Allocator& allocator) : allocator_(allocator) {}
  StrategyInfo info() const noexcept override {
    return {"release_cache", Guarantee::kBitExact, kNeedsNothing, kServesAllocator | kServesDriverCallers};
  }
  Offer offer(const OomEvent& event) noexcept override {
    if (event.source == Source::kDriverCaller) return whole_cache(event.device);
    const ReclaimEstimate estimate = estimate_reclaim(allocator_, event, IdlePages::kGiveBack);
    return {estimate.useful_bytes, estimate.pages * kPageUs + (estimate.waits ? kDrainUs : 0),
            /*counted=*/true, Takes::kIdle};
  }
  Relief relieve(const OomEvent& event, Reservation& reservation) noexcept override {
    if (event.source == Source::kDriverCaller)
      return {allocator_.empty_cache(event.device), false, "gave idle pages to the driver"};
    return {reclaim(allocator_, event, reservation, IdlePages::kGiveBack), false,
            "gave idle pages to the driver"};
  }

 private:
  // What another library's call needs is not known to the page: all that is idle goes.
  Offer whole_cache(DeviceId device) noexcept {
    Memory memory;
    if (!allocator_.uses(device) || allocator_.memory(device, &memory) != Status::kOk) return {};
    return {memory.cached, (memory.cached / kPageBytes + 1) * kPageUs + kDrainUs, /*counted=*/true,
            Takes::kIdle};
  }

  Allocator& allocator_;
};

}  // namespace

std::unique_ptr<Strategy> make_release_cache(Allocator& allocator) {
  return std::make_unique<ReleaseCache>(allocator);
}

}  // namespace spillway
