// The card is full of what other processes only cache: they are asked to give it back, and do so on a thread
// of their own. Where they show enough of it they are asked before memory in use is moved; else it is a hope,
// the last resort in place. What they show and do not give, or do not give soon, is not believed for a while,
// and hoped for once more at the end.
#include <algorithm>
#include <array>

#include "allocator/costs.h"
#include "base/backoff.h"
#include "strategies/core/core.h"
#include "strategies/core/free_bytes.h"
#include "strategies/ladder/ladder.h"
#include "strategies/processes/primary_context_guard.h"

namespace spillway {
namespace {

// While something else could serve the request, and when nothing else can: a stopped process never answers.
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kMostPatience = std::chrono::seconds(2);

class AskProcesses final : public Strategy {
 public:
  AskProcesses(Allocator& allocator, Ledger* (*ledger)(), Backoff::Now now)
      : table_(allocator.table()), ledger_(ledger), now_(now) {}
  StrategyInfo info() const noexcept override {
    return {"ask_processes", Guarantee::kBitExact, kNeedsNothing, kServesAllocator | kServesDriverCallers};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    const Ledger* ledger = ledger_();
    if (ledger == nullptr || event.over_limit) return {};
    if (shows_enough(event))
      return {event.short_bytes, costs::kOtherProcessUs, /*counted=*/true, Takes::kOthersIdle};
    const auto device = uuid_of(table_, static_cast<int>(event.device));
    if (!device || ledger->peers_on(*device) == 0) return {};
    return {event.short_bytes, costs::kOtherProcessUs, /*counted=*/false, Takes::kSpeculative};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    const auto device = uuid_of(table_, static_cast<int>(event.device));
    if (!device) return {};
    const bool shown = shows_enough(event);
    const auto patience = shown ? std::chrono::steady_clock::duration(kPatience) : kMostPatience;
    const auto deadline = std::min(event.deadline, std::chrono::steady_clock::now() + patience);
    const size_t before = free_bytes(table_);
    const auto enough = [&] { return free_bytes(table_) >= before + event.short_bytes; };
    ledger_()->ask(*device, event.short_bytes, deadline, enough);
    if (shown) note(event.device, enough());
    const size_t after = free_bytes(table_);
    return {after > before ? after - before : 0, false, "asked the other processes on the card"};
  }

 private:
  bool shows_enough(const OomEvent& event) const {
    const auto at = static_cast<size_t>(event.device);
    const auto device = uuid_of(table_, static_cast<int>(event.device));
    return device && at < backoffs_.size() && !backoffs_[at].waits(now_()) &&
           ledger_()->spare_elsewhere(*device, event.short_bytes) >= event.short_bytes;
  }
  void note(DeviceId device, bool gave) {
    Backoff& backoff = backoffs_[static_cast<size_t>(device)];
    if (gave)
      backoff.served();
    else
      backoff.refused(now_());
  }

  const driver::Table& table_;
  Ledger* (*const ledger_)();
  const Backoff::Now now_;
  std::array<Backoff, SPILLWAY_MOST_DEVICES> backoffs_;
};

}  // namespace

std::unique_ptr<Strategy> make_ask_processes(Allocator& allocator, Ledger* (*ledger)(), Backoff::Now now) {
  return std::make_unique<AskProcesses>(allocator, ledger, now);
}

}  // namespace spillway
