// How fast the device goes through the order of allocations and frees, and how fast bytes go to the other
// tiers and back: what a spill's slow-down is predicted from.
//
// Thread-safety: none; the heap's lock guards it. Errors: none; what was not measured yet has a default.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/costs.h"
#include "allocator/tiers/tiers.h"

namespace spillway {

inline constexpr size_t kTiers = 4;

class BandwidthModel {
 public:
  // `us`: the device's clock at this place in the order, 0 where it cannot be read. `undisturbed`: nothing
  // lies in another tier, which is what a slow-down is measured against.
  void read_clock(uint64_t us, uint64_t order, bool undisturbed) {
    if (undisturbed && clock_us_ != 0 && us > clock_us_ && order > clock_order_)
      us_per_order_ = static_cast<double>(us - clock_us_) / static_cast<double>(order - clock_order_);
    if (clock_us_ != 0) return;
    clock_us_ = us;
    clock_order_ = order;
  }
  void measured(Tier tier, uint64_t bytes, double us) {
    if (us > 0) bytes_per_us_[static_cast<size_t>(tier)] = static_cast<double>(bytes) / us;
  }

  // 0: not known yet.
  double us_per_order() const { return us_per_order_; }
  // What costs.h says until a spill has measured.
  double bytes_per_us(Tier tier) const {
    if (const double known = bytes_per_us_[static_cast<size_t>(tier)]; known != 0) return known;
    if (tier == Tier::kHost) return costs::kHostBytesPerUs;
    if (tier == Tier::kNvme) return costs::kFileBytesPerUs;
    return costs::kPeerBytesPerUs;
  }

 private:
  uint64_t clock_us_ = 0, clock_order_ = 0;
  double us_per_order_ = 0;
  std::array<double, kTiers> bytes_per_us_{};
};

}  // namespace spillway
