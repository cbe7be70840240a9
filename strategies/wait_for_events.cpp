// Blocks that were freed but are still in use on other streams: waits for just as many of their events as the
// request needs, in the order in which they were recorded.
#include "allocator/pages/reclaim.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

// A wait lasts as long as the work before the event; most of it has usually run by the time memory is short.
constexpr uint64_t kTypicalWaitUs = 100;

class WaitForEvents final : public Strategy {
 public:
  explicit WaitForEvents(Allocator& allocator) : allocator_(allocator) {}
  StrategyInfo info() const noexcept override {
    return {"wait_for_events", Guarantee::kBitExact, kNeedsNothing};
  }
  Offer offer(const OomEvent& event) noexcept override {
    return {pending_bytes(allocator_, event), kTypicalWaitUs, /*counted=*/true, Takes::kIdle};
  }
  Relief relieve(const OomEvent& event, Reservation&) noexcept override {
    uint64_t waited = 0;
    return {wait_for_events(allocator_, event, &waited), false, "waited for events of other streams"};
  }

 private:
  Allocator& allocator_;
};

}  // namespace

std::unique_ptr<Strategy> make_wait_for_events(Allocator& allocator) {
  return std::make_unique<WaitForEvents>(allocator);
}

}  // namespace spillway
