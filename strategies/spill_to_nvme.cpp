// Blocks that the program registered and does not use at the moment go to a file. That needs no gate: nothing
// may use them until the program says so, and then they are there again.
#include <algorithm>

#include "strategies/quiesce/wait_until_idle.h"
#include "strategies/spill_offer.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kMostWait = std::chrono::seconds(3);

class SpillToNvme final : public Strategy {
 public:
  SpillToNvme(Allocator& allocator, const SpillLimits& limits) : allocator_(allocator), limits_(limits) {}
  StrategyInfo info() const noexcept override { return {"spill_to_nvme"}; }
  Offer offer(const PendingRequest& request) noexcept override {
    const SpillPlace where = place(request.event);
    const SpillEstimate estimate = request.estimate_spill(where);
    if (estimate.needed_bytes == 0) return {};
    if (estimate.movable_bytes < estimate.needed_bytes)
      return refused("of %s that must go, only %s are registered and not in use", estimate.needed_bytes,
                     estimate.movable_bytes);
    if (estimate.useful_bytes == 0)
      return refused("%s must go, and the file takes %s more", estimate.needed_bytes, where.most_bytes);
    return offer_of(estimate, Tier::kNvme, limits_.most_slowdown);
  }
  Relief relieve(PendingRequest& request) noexcept override {
    thread_local std::string why_not;
    const uint64_t bytes = request.spill(place(request.event)).bytes;
    why_not = bytes == 0 ? file_trouble(allocator_) : "";
    if (!why_not.empty()) why_not = "the file could not be written: " + why_not;
    return {bytes, false, "moved registered blocks to a file", why_not.c_str()};
  }

 private:
  SpillPlace place(const OomEvent& event) const {
    const auto wait = [this, &event] {
      return wait_until_idle(allocator_, std::min(event.deadline, Clock::now() + kMostWait));
    };
    return {.tier = Tier::kNvme, .most_bytes = file_room_bytes(allocator_), .come_to_rest = wait};
  }

  Allocator& allocator_;
  const SpillLimits limits_;
};

}  // namespace

std::unique_ptr<Strategy> make_spill_to_nvme(Allocator& allocator, const SpillLimits& limits) {
  return std::make_unique<SpillToNvme>(allocator, limits);
}

}  // namespace spillway
