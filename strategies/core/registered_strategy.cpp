#include "strategies/core/registered_strategy.h"

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

constexpr bool unwinds(const spillway_strategy& strategy) {
  return (strategy.needs & kNeedsUnwinding) != 0;
}

// The program may change it meanwhile.
Offer standing_offer(const void* context) {
  const auto* offer = static_cast<const spillway_offer*>(context);
  return {__atomic_load_n(&offer->bytes, __ATOMIC_RELAXED),
          __atomic_load_n(&offer->cost_us, __ATOMIC_RELAXED)};
}

class Registered final : public Strategy {
 public:
  explicit Registered(const spillway_strategy& strategy) : name_(strategy.name), strategy_(strategy) {}

  StrategyInfo info() const noexcept override {
    // Another library's call has no step to unwind.
    return {name_, static_cast<Guarantee>(strategy_.guarantee), strategy_.needs,
            unwinds(strategy_) ? kServesAllocator : kServesAllocator | kServesDriverCallers};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    if (strategy_.offer == nullptr) return standing_offer(strategy_.context);
    const spillway_oom oom = to_c(request.event);
    const spillway_offer offer = strategy_.offer(strategy_.context, &oom);
    return {offer.bytes, offer.cost_us, /*counted=*/false};  // nobody promised that
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const spillway_oom oom = to_c(request.event);
    const uint64_t bytes = strategy_.relieve == nullptr ? 0 : strategy_.relieve(strategy_.context, &oom);
    return {unwinds(strategy_) ? 0 : bytes, unwinds(strategy_), ""};
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
  if ((strategy->offer == nullptr || strategy->relieve == nullptr) && !unwinds(*strategy))
    return refuse("offer or relieve is missing: only what needs unwinding does without");
  if (strategy->offer == nullptr && strategy->context == nullptr)
    return refuse("without offer, context is a spillway_offer");
  if (strategy->guarantee > SPILLWAY_STATISTICS_CHANGE) return refuse("there is no such guarantee");
  if ((strategy->needs & ~kAllNeeds) != 0) return refuse("`needs` has an unknown bit");
  if ((strategy->needs & kNeedsGate) != 0)
    return refuse("a strategy of the program's own cannot hold launches: another thread may wait for it");
  if ((strategy->needs & (kNeedsRanks | kNeedsUnwinding)) == kNeedsRanks)
    return refuse("what every rank must agree on has to unwind: set SPILLWAY_NEEDS_UNWINDING too");
  return std::make_unique<Registered>(*strategy);
}

}  // namespace spillway
