// How long a spill and the way back take beside a plain copy, with what driver calls and pinned memory cost
// on real cards.
#include "tests/sanitized.h"
#include "tests/strategies/tiers/host/timed_spill.h"
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

constexpr double kBytesPerNs = 25, kPinnedBytesPerNs = 3;

// Blocks without a chunk of 32 MiB come back as fast as the driver exchanges single pages on both sides.
struct Size {
  uint64_t request_bytes, block_bytes;
  double back_bar = 0.9;
};

class SpillSpeed : public Spill, public ::testing::WithParamInterface<Size> {
 protected:
  void SetUp() override {
    Spill::SetUp();
    request_ = GetParam().request_bytes;
    set_capacity(8 * request_);
    restart();
    allocator->limit(kDevice, 2 * request_ + kPage);  // a page for the small ones of let_time_pass
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(std::make_unique<TimedSpill>(
        table, make_spill_to_host(*allocator, {.host_bytes = 16 * request_, .most_slowdown = 0}), &times_));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
    const uint64_t bytes = GetParam().block_bytes;
    for (uint64_t at = 0; at < 2 * request_; at += bytes) ASSERT_NE(get(bytes), 0u);
    let_time_pass();
  }
  // What a plain copy of so many bytes takes ÷ what this took.
  static double ratio(uint64_t bytes, uint64_t ns) {
    return static_cast<double>(bytes) / kBytesPerNs / static_cast<double>(ns);
  }
  // Spills, and brings all of it back. Sets `back`, a ratio.
  void spill_and_return(double* back) {
    const uint64_t block = get(request_);
    ASSERT_NE(block, 0u) << failure->text;
    put(block);
    allocator->limit(kDevice, 5 * request_);  // room for all of it, and for what stays free then
    wait_for_room();
    const SpillwaySimulatorCounts before = counts();
    const uint64_t bytes = unspill(*allocator, kDevice);
    ASSERT_GE(bytes, request_);
    *back = ratio(bytes, counts().virtual_ns - before.virtual_ns);
    ASSERT_EQ(memory().spilled, 0u);
    allocator->limit(kDevice, 2 * request_ + kPage);
  }
  // Longer where spills were shortly after each other.
  void wait_for_room() {
    for (int i = 0; i < 100 && returnable_bytes(*allocator, kDevice) == 0; ++i) let_time_pass(2'000);
    ASSERT_NE(returnable_bytes(*allocator, kDevice), 0u);
  }
  SpillTimes times_;
  uint64_t request_ = 0;
};

TEST_P(SpillSpeed, FromTheSecondOnIsThatOfACopyBothWays) {
  double first_back = 0, back = 0;
  spill_and_return(&first_back);
  spill_and_return(&back);
  EXPECT_GE(ratio(times_.copied_bytes, times_.took_ns), 0.9) << "of the spill";
  EXPECT_GE(back, GetParam().back_bar) << "of the way back";
  EXPECT_GE(first_back, GetParam().back_bar) << "of the first way back, for which nothing has to be made";
}

TEST_P(SpillSpeed, OfTheFirstIsWhatWasOffered) {
  ASSERT_NE(get(request_), 0u) << failure->text;
  EXPECT_GE(static_cast<double>(times_.took_ns), static_cast<double>(request_) / kPinnedBytesPerNs)
      << "its memory had to be made";
  // More goes than was needed: what is offered is for the request.
  const double share = static_cast<double>(request_) / static_cast<double>(times_.copied_bytes);
  EXPECT_NEAR(static_cast<double>(times_.offered_us) * 1000 / (static_cast<double>(times_.took_ns) * share),
              1, 0.15);
}

TEST_P(SpillSpeed, OfTheSecondIsOfferedForLess) {
  double back = 0;
  spill_and_return(&back);
  const uint64_t first_us = times_.offered_us;
  ASSERT_NE(get(request_), 0u) << failure->text;
  EXPECT_LT(times_.offered_us, first_us / 3);
}

std::vector<Size> sizes() {
  if (kSanitized) return {{64 * kMiB, 8 * kMiB, 0.8}};
  return {
      {64 * kMiB, 64 * kMiB}, {64 * kMiB, 8 * kMiB, 0.8}, {256 * kMiB, 256 * kMiB}, {256 * kMiB, 40 * kMiB}};
}

INSTANTIATE_TEST_SUITE_P(OfEachSize, SpillSpeed, ::testing::ValuesIn(sizes()), [](const auto& info) {
  return std::to_string(info.param.request_bytes / kMiB) + "InBlocksOf" +
         std::to_string(info.param.block_bytes / kMiB);
});

}  // namespace
}  // namespace spillway::testing
