#include "strategies/registered.h"

namespace spillway {
namespace {

constexpr uint32_t kAllNeeds =
    kNeedsIdleDevice | kNeedsGate | kNeedsFrameworkLock | kNeedsRanks | kNeedsUnwinding;

spillway_oom to_c(const OomEvent& event) {
  spillway_oom out{};
  out.size = sizeof(out);
  out.attempt = event.attempt;
  out.incident = event.incident;
  out.requested_bytes = event.requested_bytes;
  out.rounded_bytes = event.rounded_bytes;
  out.short_bytes = event.short_bytes;
  out.largest_extent_bytes = event.largest_extent_bytes;
  out.device = static_cast<int32_t>(event.device);
  out.allowed = static_cast<uint32_t>(event.allowed);
  out.stream = static_cast<uint64_t>(event.stream);
  out.pool = event.pool;
  out.library = event.library;
  out.phase = event.phase;
  return out;
}

class Registered final : public Strategy {
 public:
  explicit Registered(const spillway_strategy& strategy) : name_(strategy.name), strategy_(strategy) {}

  StrategyInfo info() const noexcept override {
    // Another library's call has no step to unwind.
    const bool unwinds = (strategy_.needs & kNeedsUnwinding) != 0;
    return {name_, static_cast<Guarantee>(strategy_.guarantee), strategy_.needs,
            unwinds ? kServesAllocator : kServesAllocator | kServesDriverCallers};
  }
  Offer offer(const OomEvent& event) noexcept override {
    const spillway_oom oom = to_c(event);
    const spillway_offer offer = strategy_.offer(strategy_.context, &oom);
    return {offer.bytes, offer.cost_us, /*counted=*/false};  // nobody promised that
  }
  Relief relieve(const OomEvent& event, Reservation&) noexcept override {
    const spillway_oom oom = to_c(event);
    const uint64_t bytes = strategy_.relieve(strategy_.context, &oom);
    const bool unwind = (strategy_.needs & kNeedsUnwinding) != 0;
    return {unwind ? 0 : bytes, unwind, ""};
  }

 private:
  std::string name_;
  spillway_strategy strategy_;
};

}  // namespace

std::unique_ptr<Strategy> make_registered(const spillway_strategy* strategy, std::string* wrong) {
  auto refuse = [wrong](const char* text) {
    *wrong = text;
    return nullptr;
  };
  if (strategy == nullptr || strategy->size < sizeof(spillway_strategy))
    return refuse("set strategy->size first");
  if (strategy->name == nullptr || strategy->name[0] == '\0') return refuse("the strategy needs a name");
  if (strategy->offer == nullptr || strategy->relieve == nullptr)
    return refuse("offer or relieve is missing");
  if (strategy->guarantee > SPILLWAY_STATISTICS_CHANGE) return refuse("there is no such guarantee");
  if ((strategy->needs & ~kAllNeeds) != 0) return refuse("`needs` has an unknown bit");
  if ((strategy->needs & kNeedsGate) != 0)
    return refuse("a strategy of the program's own can not hold launches: another thread may wait for it");
  if ((strategy->needs & (kNeedsRanks | kNeedsUnwinding)) == kNeedsRanks)
    return refuse("what every rank must agree on has to unwind: set SPILLWAY_NEEDS_UNWINDING too");
  return std::make_unique<Registered>(*strategy);
}

}  // namespace spillway
