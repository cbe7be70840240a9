// In computing mode: bytes that were moved to host memory are there, at their address, and back again.
#include "tests/strategies/tiers/values.h"

#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"
#include "tests/strategies/tiers/open_gate.h"

namespace spillway::testing {
namespace {

class SpilledValues : public Values {
 protected:
  void SetUp() override {
    Values::SetUp();
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(
        make_spill_to_host(*allocator, {.host_bytes = 64 * kMiB, .available = nullptr, .most_slowdown = 0}));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
    allocator->limit(kDevice, 32 * kMiB);
  }
  OneThreadsGate gate;
  std::unique_ptr<Ladder> ladder;
};

TEST_F(SpilledValues, ComeThroughAndStayWritable) {
  constexpr uint64_t kBytes = 7 * kMiB + 512;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(get(kBytes));
    fill(blocks.back(), kBytes, static_cast<unsigned char>(i + 1));
  }
  let_time_pass();
  const uint64_t more = get(10 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  fill(more, 10 * kMiB, 0xEE);
  EXPECT_GT(memory().spilled, 0u);
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_TRUE(holds(blocks[i], kBytes, static_cast<unsigned char>(i + 1))) << i;
  for (size_t i = 0; i < blocks.size(); ++i) fill(blocks[i], kBytes, static_cast<unsigned char>(i + 11));
  put(more);
  let_time_pass(25'000);
  EXPECT_GT(returnable_bytes(*allocator, kDevice), 0u);
  EXPECT_GT(unspill(*allocator, kDevice), 0u);
  check();
  EXPECT_EQ(memory().spilled, 0u);
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_TRUE(holds(blocks[i], kBytes, static_cast<unsigned char>(i + 11))) << i;
  for (const uint64_t block : blocks) put(block);
}

}  // namespace
}  // namespace spillway::testing
