// The card is full of what other processes only cache: they are asked to give it back, and do so on a thread
// of their own. What they show as idle is worth asking for before memory in use is moved; with nothing shown,
// asking is the last resort in place, since what they show may be older than their latest step.
#include <algorithm>
#include <atomic>

#include "spillway/strategies/ladder.h"
#include "strategies/free_bytes.h"
#include "strategies/used_device.h"

namespace spillway {
namespace {

constexpr uint64_t kTypicalUs = 50'000;  // until one has answered: as long as a framework's cache takes here
constexpr uint64_t kLastResortUs = 200'000;
constexpr auto kMostTime = std::chrono::seconds(2);

class AskPeers final : public Strategy {
 public:
  AskPeers(Allocator& allocator, Ledger* (*ledger)()) : table_(allocator.table()), ledger_(ledger) {}
  StrategyInfo info() const noexcept override {
    return {"ask_peers", Guarantee::kBitExact, kNeedsNothing, kServesAllocator | kServesDriverCallers};
  }
  Offer offer(const OomEvent& event) noexcept override {
    const Ledger* ledger = ledger_();
    if (ledger == nullptr || ledger->peers() == 0 || event.over_limit) return {};
    const auto device = known_uuid(static_cast<int>(event.device));
    const uint64_t idle = device ? ledger->idle_elsewhere(*device, event.short_bytes) : 0;
    if (idle == 0) return {event.short_bytes, kLastResortUs, /*counted=*/false};
    return {idle, usual_us_.load(), /*counted=*/false};
  }
  Relief relieve(const OomEvent& event, Reservation&) noexcept override {
    const auto device = uuid_of(table_, static_cast<int>(event.device));
    if (!device) return {};
    const auto start = std::chrono::steady_clock::now();
    const size_t before = free_bytes(table_);
    const auto enough = [&] { return free_bytes(table_) >= before + event.short_bytes; };
    ledger_()->ask(*device, event.short_bytes, std::min(event.deadline, start + kMostTime), enough);
    const size_t after = free_bytes(table_);
    if (after <= before) return {0, false, "asked the other processes on the card"};
    note(std::chrono::steady_clock::now() - start);
    return {after - before, false, "asked the other processes on the card"};
  }

 private:
  // The mean of all, the latest the weightiest.
  void note(std::chrono::steady_clock::duration took) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    usual_us_.store((usual_us_.load() + static_cast<uint64_t>(us)) / 2);
  }

  const driver::Table& table_;
  Ledger* (*const ledger_)();
  std::atomic<uint64_t> usual_us_{kTypicalUs};
};

}  // namespace

std::unique_ptr<Strategy> make_ask_peers(Allocator& allocator, Ledger* (*ledger)()) {
  return std::make_unique<AskPeers>(allocator, ledger);
}

}  // namespace spillway
