// The coldest blocks' memory goes to pinned host memory at the same address, where kernels can still use it.
#include <algorithm>
#include <cstdio>

#include "spillway/allocator/spill.h"
#include "spillway/allocator/verdict.h"
#include "spillway/strategies/ladder.h"

namespace spillway {
namespace {

// What exchanging the pages behind an address takes for each of 2 MiB, beside the copy.
constexpr uint64_t kPageUs = 26 + 2 + 36, kStandstillUs = 500;

class SpillToHost final : public Strategy {
 public:
  SpillToHost(Allocator& allocator, const SpillLimits& limits) : allocator_(allocator), limits_(limits) {}
  StrategyInfo info() const noexcept override {
    return {"spill_to_host", Guarantee::kBitExact, kNeedsIdleDevice | kNeedsGate};
  }
  Offer offer(const OomEvent& event) noexcept override {
    const SpillPlace where = place(event);
    const SpillEstimate estimate = estimate_spill(allocator_, event, where);
    Offer offer;
    if (estimate.needed_bytes == 0) return offer;
    if (estimate.bytes < estimate.needed_bytes)
      return because(offer, "of %s that must go, only %s are not pinned", estimate.needed_bytes,
                     estimate.bytes);
    if (estimate.useful_bytes == 0)
      return because(offer, "%s must go, and of the budget of host memory %s are left", estimate.needed_bytes,
                     where.most_bytes);
    if (limits_.most_slowdown != 0 && estimate.slowdown > limits_.most_slowdown) {
      std::snprintf(offer.why_not, sizeof offer.why_not,
                    "the program would run %.1f times as long, and %.1f is the most", estimate.slowdown,
                    limits_.most_slowdown);
      return offer;
    }
    const uint64_t pages = estimate.bytes >> 21;
    offer.bytes = estimate.useful_bytes;
    const double copy_us = static_cast<double>(estimate.bytes) / estimate.bytes_per_us;
    offer.cost_us = static_cast<uint64_t>(copy_us) + pages * kPageUs + kStandstillUs;
    return offer;
  }
  Relief relieve(const OomEvent& event, Reservation& reservation) noexcept override {
    return {spill(allocator_, event, reservation, place(event)), false, "moved cold blocks to host memory"};
  }

 private:
  static Offer because(Offer& offer, const char* format, uint64_t first, uint64_t second) {
    std::snprintf(offer.why_not, sizeof offer.why_not, format, size_text(first).c_str(),
                  size_text(second).c_str());
    return offer;
  }
  SpillPlace place(const OomEvent& event) const {
    const uint64_t there =
        spilled_bytes(allocator_, Tier::kHost) + host_spare_bytes(allocator_, event.device);
    return {.tier = Tier::kHost,
            .peer = {},
            .most_bytes = std::min(limits_.host_bytes > there ? limits_.host_bytes - there : 0,
                                   limits_.available == nullptr ? UINT64_MAX : limits_.available())};
  }

  Allocator& allocator_;
  const SpillLimits limits_;
};

}  // namespace

std::unique_ptr<Strategy> make_spill_to_host(Allocator& allocator, const SpillLimits& limits) {
  return std::make_unique<SpillToHost>(allocator, limits);
}

}  // namespace spillway
