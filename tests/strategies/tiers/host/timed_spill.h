// A strategy that does what another does, and says what it had offered and how long it took on the virtual
// clock: of a request that waits for a spill, the part that is the spill's.
//
// Thread-safety: none. Ownership: of the other strategy; the table must outlive it. Units: virtual ns.
#pragma once
#include <memory>
#include <utility>

#include "driver/table.h"
#include "strategies/ladder/ladder.h"

namespace spillway::testing {

struct SpillTimes {
  uint64_t offered_us = 0, took_ns = 0, copied_bytes = 0;  // of the last one
};

class TimedSpill final : public Strategy {
 public:
  TimedSpill(const driver::Table& table, std::unique_ptr<Strategy> spill, SpillTimes* times)
      : table_(table), spill_(std::move(spill)), times_(times) {}
  StrategyInfo info() const noexcept override { return spill_->info(); }
  Offer offer(const PendingRequest& request) noexcept override {
    const Offer offer = spill_->offer(request);
    if (offer.bytes != 0) times_->offered_us = offer.cost_us;
    return offer;
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const SpillwaySimulatorCounts before = counts();
    const Relief relief = spill_->relieve(request);
    times_->took_ns = counts().virtual_ns - before.virtual_ns;
    times_->copied_bytes = counts().copied_bytes - before.copied_bytes;
    return relief;
  }

 private:
  SpillwaySimulatorCounts counts() const {
    SpillwaySimulatorCounts counts{};
    table_.simulator->counts(&counts);
    return counts;
  }

  const driver::Table& table_;
  const std::unique_ptr<Strategy> spill_;
  SpillTimes* const times_;
};

}  // namespace spillway::testing
