// When other processes are asked for what they cache, and what of their word is believed: on the simulated
// device, with a ledger whose other members are the test.
#include <algorithm>

#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct FakeLedger : Ledger {
  size_t others = 1;
  uint64_t shown = 0;
  std::function<uint64_t(uint64_t bytes)> give = [](uint64_t) { return uint64_t{0}; };
  std::vector<Clock::duration> patience;

  size_t peers() const override { return others; }
  size_t peers_on(const DeviceUuid&) const override { return others; }
  uint64_t spare_elsewhere(const DeviceUuid&, uint64_t most) const override { return std::min(shown, most); }
  uint64_t ask(const DeviceUuid&, uint64_t bytes, Clock::time_point deadline,
               const std::function<bool()>&) override {
    patience.push_back(deadline - Clock::now());
    return give(bytes);
  }
  bool asks() const override { return false; }
  bool wait_for_need(Need*, milliseconds) override { return false; }
  void wake_members() override {}
  void answer(const Need&, uint64_t) override {}
  void show(const LedgerEntry&) override {}
};

class AskProcesses : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    ledger = {};
    now = Clock::now();
    strategy =
        make_ask_processes(*allocator, [] { return static_cast<Ledger*>(&ledger); }, [] { return now; });
    event.device = kDevice;
    event.short_bytes = 20 * kMiB;
    event.deadline = Clock::now() + std::chrono::seconds(30);
    size_t free_bytes = 0, total = 0;
    ASSERT_EQ(table.cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
    others = free_bytes;
    ASSERT_EQ(control->charge(0, "others", others), CUDA_SUCCESS);
    ledger.give = [this](uint64_t bytes) { return gives(bytes); };
  }
  void TearDown() override {
    EXPECT_EQ(control->discharge(0, "others", others), CUDA_SUCCESS);
    SimulatedDevice::TearDown();
  }
  uint64_t gives(uint64_t bytes) {
    EXPECT_EQ(control->discharge(0, "others", bytes), CUDA_SUCCESS);
    others -= bytes;
    return bytes;
  }
  uint64_t relieve() { return strategy->relieve(request).bytes; }
  Takes takes() { return strategy->offer(request).takes; }

  struct DriverCall : PendingRequest {
    DriverCall() : PendingRequest({}) {}
    bool retry() noexcept override { return false; }
  } request;
  static inline FakeLedger ledger;
  static inline Backoff::Time now;
  std::unique_ptr<Strategy> strategy;
  OomEvent& event = request.event;
  size_t others = 0;
};

TEST_F(AskProcesses, OffersWhatOthersShowBeforeWhatIsInUse) {
  ledger.shown = 20 * kMiB;
  EXPECT_EQ(strategy->offer(request).bytes, 20 * kMiB);
  EXPECT_EQ(takes(), Takes::kOthersIdle);
  ledger.shown = 20 * kMiB - 1;
  EXPECT_EQ(strategy->offer(request).bytes, 20 * kMiB);
  EXPECT_EQ(takes(), Takes::kSpeculative) << "it would not do";
  event.device = DeviceId{63};
  ledger.shown = 20 * kMiB;
  EXPECT_EQ(strategy->offer(request).bytes, 0u) << "nobody knows that device";
}

TEST_F(AskProcesses, OffersNothingWhereNobodyCouldHelp) {
  ledger.shown = 20 * kMiB;
  event.over_limit = true;
  EXPECT_EQ(strategy->offer(request).bytes, 0u);
  event.over_limit = false;
  ledger.shown = 0;
  ledger.others = 0;
  EXPECT_EQ(strategy->offer(request).bytes, 0u) << "there are others, but not on this card";
  const auto without = make_ask_processes(*allocator, []() -> Ledger* { return nullptr; });
  EXPECT_EQ(without->offer(request).bytes, 0u);
}

TEST_F(AskProcesses, MeasuresWhatCameFree) {
  ledger.shown = 64 * kMiB;
  ledger.give = [this](uint64_t bytes) { return gives(bytes + 4 * kMiB); };
  EXPECT_EQ(relieve(), 24 * kMiB);
  ledger.give = [](uint64_t bytes) { return bytes; };
  EXPECT_EQ(relieve(), 0u) << "they say so, and nothing came free";
}

TEST_F(AskProcesses, WaitsLongOnlyAsALastResort) {
  ledger.shown = 20 * kMiB;
  relieve();
  ledger.shown = 0;
  relieve();
  ASSERT_EQ(ledger.patience.size(), 2u);
  EXPECT_LT(ledger.patience[0], milliseconds(501));
  EXPECT_GT(ledger.patience[1], milliseconds(1500));
}

TEST_F(AskProcesses, DoesNotBelieveForAWhileWhatWasNotGiven) {
  for (const uint64_t given : {uint64_t{0}, 10 * kMiB}) {
    ledger.shown = 64 * kMiB;
    ASSERT_EQ(takes(), Takes::kOthersIdle);
    ledger.give = [this, given](uint64_t) { return gives(given); };
    EXPECT_EQ(relieve(), given);
    EXPECT_EQ(takes(), Takes::kSpeculative) << given;
    now += Backoff::kFirst;
    EXPECT_EQ(takes(), Takes::kOthersIdle) << given;
    ledger.give = [this](uint64_t bytes) { return gives(bytes); };
    EXPECT_EQ(relieve(), 20 * kMiB) << "and what is given makes it good";
  }
}

TEST_F(AskProcesses, AVainHopeSaysNothingOfWhatIsShownLater) {
  ledger.give = [](uint64_t) { return uint64_t{0}; };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(relieve(), 0u);
  ledger.shown = 20 * kMiB;
  EXPECT_EQ(takes(), Takes::kOthersIdle);
}

}  // namespace
}  // namespace spillway::testing
