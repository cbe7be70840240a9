// Memory that lies elsewhere and slows the program more than was predicted: kernels that nobody was told of
// use it. What the program's steps take is measured, and acted upon.
#include "strategies/unspill_when_due.h"
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

class SlowerThanPredicted : public Spill {
 protected:
  static constexpr int kStepsBefore = 25;
  static constexpr double kMost = 2;

  // Each step tells of one use of each block, and uses it more often.
  void SetUp() override {
    Spill::SetUp();
    with(limits());
    blocks = blocks_of(10 * kMiB, 3);
    EXPECT_EQ(get(60 * kMiB), 0u) << "uses are known from now on";
    steps(kStepsBefore);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      for (const uint64_t block : blocks) {
        touch(*allocator, block);
        for (int use = 0; use < 10; ++use) launch(StreamId{}, block, 10 * kMiB, 100);
        let_time_pass(100);
      }
      table.cuStreamSynchronize(nullptr);
      for (int call = 0; call < 1024; ++call) unspill_now_and_then(*allocator, *ladder, limits);
    }
  }

  static SpillLimits limits() {
    return {.host_bytes = 256 * kMiB, .available = nullptr, .most_slowdown = kMost};
  }

  std::vector<uint64_t> blocks;
};

TEST_F(SlowerThanPredicted, ComesBackAsSoonAsThereIsRoom) {
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_GE(memory().spilled, 18 * kMiB);
  blocks.push_back(more);
  steps(8);
  EXPECT_GE(memory().spilled, 18 * kMiB) << "all are used alike";
  blocks.pop_back();
  put(more);
  steps(8);
  EXPECT_EQ(memory().spilled, 0u);
}

TEST_F(SlowerThanPredicted, TheNextSpillIsTheLastResort) {
  blocks.push_back(get(20 * kMiB));
  ASSERT_NE(blocks.back(), 0u) << failure->text;
  steps(8);
  ::testing::internal::CaptureStderr();
  EXPECT_NE(get(8 * kMiB), 0u) << "who would die should rather be slow";
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("and --max-slowdown allows 2.0"), std::string::npos) << said;
}

// There is no room: what nobody uses goes instead.
TEST_F(SlowerThanPredicted, ChangesPlacesWithWhatIsUsedLess) {
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  steps(16);
  EXPECT_GE(memory().spilled, 18 * kMiB);
  EXPECT_LT(slowdown_of(*allocator, kDevice).measured, 1.2);
}

}  // namespace
}  // namespace spillway::testing
