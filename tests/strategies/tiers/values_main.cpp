// In computing mode: bytes written before stitching are there after it, in the blocks around and in those
// moved to.
#include "tests/strategies/tiers/values.h"

#include <cstdlib>

#include "strategies/ladder/ladder.h"

namespace spillway::testing {
namespace {

TEST_F(Values, SurviveStitchingAroundThem) {
  ASSERT_EQ(control->mode(), SPILLWAY_SIMULATOR_COMPUTE);
  Ladder ladder(*allocator);
  ladder.add(make_stitch());
  allocator->set_handler(&ladder);
  allocator->limit(kDevice, 32 * kMiB);
  constexpr uint64_t kBytes = 3 * kMiB + 512;  // blocks that share pages with their neighbours
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 10; ++i) {
    blocks.push_back(get(kBytes));
    ASSERT_NE(blocks.back(), 0u);
    fill(blocks.back(), kBytes, static_cast<unsigned char>(i + 1));
  }
  for (const size_t i : {1, 2, 4, 5, 7, 8}) put(blocks[i]);
  const uint64_t stitched = get(10 * kMiB);
  ASSERT_NE(stitched, 0u) << failure->text;
  fill(stitched, 10 * kMiB, 0xEE);
  for (const size_t i : {0, 3, 6, 9})
    EXPECT_TRUE(holds(blocks[i], kBytes, static_cast<unsigned char>(i + 1))) << i;
  EXPECT_TRUE(holds(stitched, 10 * kMiB, 0xEE));
  EXPECT_EQ(ladder.counts()[0].useful, 1u);
  for (const size_t i : {0, 3, 6, 9}) put(blocks[i]);
  EXPECT_TRUE(holds(stitched, 10 * kMiB, 0xEE));
  put(stitched);
}

}  // namespace
}  // namespace spillway::testing

int main(int argc, char** argv) {
  // The simulator reads its mode when it is loaded.
  setenv("SPILLWAY_SIM_VALUES", "compute", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
