// Host memory that blocks have left serves later ones of any size, within the budget.
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

class HostMemoryOfSpills : public Spill {
 protected:
  uint64_t creates() { return control->calls("cuMemCreate"); }
  // With room for all, and for what stays free then.
  void come_back(uint64_t limit) {
    allocator->limit(kDevice, 2 * limit);
    let_time_pass(25'000);
    while (unspill(*allocator, kDevice) != 0) check();
    ASSERT_EQ(memory().spilled, 0u);
    allocator->limit(kDevice, limit);
  }
};

TEST_F(HostMemoryOfSpills, ServesTheNextSpill) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  put(more);
  come_back(32 * kMiB);
  const uint64_t before = creates();
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_EQ(creates(), before);
}

TEST_F(HostMemoryOfSpills, ServesBlocksOfOtherSizes) {
  allocator->limit(kDevice, 164 * kMiB);
  auto blocks = blocks_of(80 * kMiB, 2);
  let_time_pass();
  const uint64_t more = get(80 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  for (const uint64_t block : blocks) put(block);
  put(more);
  let_time_pass();
  ASSERT_EQ(memory().spilled, 0u);
  blocks = blocks_of(70 * kMiB, 2);
  blocks.push_back(get(20 * kMiB));
  let_time_pass();
  const uint64_t before = creates();
  EXPECT_NE(get(68 * kMiB), 0u) << failure->text;
  EXPECT_EQ(creates(), before);
}

TEST_F(HostMemoryOfSpills, IsKeptWithinTheBudget) {
  with({.host_bytes = 40 * kMiB, .available = nullptr, .most_slowdown = 0});
  allocator->limit(kDevice, 66 * kMiB);
  const uint64_t large = get(32 * kMiB);
  const auto small = blocks_of(4 * kMiB, 8);
  let_time_pass();
  touch(*allocator, large);
  uint64_t more = get(30 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  const uint64_t pages = memory().spilled;
  EXPECT_LE(pages, 40 * kMiB);
  put(more);
  come_back(66 * kMiB);
  for (const uint64_t block : small) put(block);
  let_time_pass();
  ASSERT_NE(get(32 * kMiB), 0u) << "of what was freed";
  more = get(32 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_GE(spilled_bytes(*allocator, Tier::kHost), 32 * kMiB);
  EXPECT_LE(spilled_bytes(*allocator, Tier::kHost) + kept_host_bytes(*allocator, kDevice), 40 * kMiB);
}

}  // namespace
}  // namespace spillway::testing
