// The card is full of what other processes only cache: they are asked to give it back, and do so on a thread
// of their own. The last resort in place: it costs the others their caches.
#include <algorithm>

#include "spillway/strategies/ladder.h"
#include "strategies/free_bytes.h"

namespace spillway {
namespace {

constexpr uint64_t kTypicalUs = 200'000;
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
    return {event.short_bytes, kTypicalUs, /*counted=*/false};
  }
  Relief relieve(const OomEvent& event, Reservation&) noexcept override {
    CUuuid uuid;
    if (table_.cuDeviceGetUuid(&uuid, static_cast<CUdevice>(event.device)) != CUDA_SUCCESS) return {};
    DeviceUuid device;
    std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), device.size(), device.begin());
    const size_t before = free_bytes(table_);
    const auto enough = [&] { return free_bytes(table_) >= before + event.short_bytes; };
    ledger_()->ask(device, event.short_bytes,
                   std::min(event.deadline, std::chrono::steady_clock::now() + kMostTime), enough);
    const size_t after = free_bytes(table_);
    return {after > before ? after - before : 0, false, "asked the other processes on the card"};
  }

 private:
  const driver::Table& table_;
  Ledger* (*const ledger_)();
};

}  // namespace

std::unique_ptr<Strategy> make_ask_peers(Allocator& allocator, Ledger* (*ledger)()) {
  return std::make_unique<AskPeers>(allocator, ledger);
}

}  // namespace spillway
