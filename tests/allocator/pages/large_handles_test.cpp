// Handles of several pages on a device: one call of the driver for many pages while much is free, single
// pages near the limit, and what is idle goes back whole and comes again in pieces.
#include "allocator/pages/idle_pages.h"
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class LargeHandles : public SimulatedDevice {
 protected:
  LargeHandles() { handle_rule = {.most_bytes = 16 * kMiB, .share = 4}; }
  void SetUp() override {
    SimulatedDevice::SetUp();
    start();
  }
  void start() {
    restart();
    ladder_ = std::make_unique<Ladder>(*allocator);
    ladder_->add(make_stitch());
    allocator->set_handler(ladder_.get());
  }
  void TearDown() override {
    allocator->set_handler(nullptr);
    SimulatedDevice::TearDown();
  }
  uint64_t created() const { return control->calls("cuMemCreate"); }

  std::unique_ptr<Ladder> ladder_;
};

TEST_F(LargeHandles, TakeFewerCallsOfTheDriver) {
  ASSERT_NE(get(kKiB), 0u);  // the device is started
  const uint64_t before = created(), maps = control->calls("cuMemMap");
  const uint64_t block = get(64 * kMiB);
  ASSERT_NE(block, 0u);
  EXPECT_EQ(created() - before, 4u) << "and not 32 single pages";
  EXPECT_EQ(control->calls("cuMemMap") - maps, 4u);
  launch({}, block, 64 * kMiB);
  EXPECT_NE(get(10 * kMiB), 0u);
  EXPECT_EQ(created() - before, 5u) << "one of ten MiB";
}

TEST_F(LargeHandles, AreSinglePagesNearTheLimit) {
  allocator->limit(kDevice, 64 * kMiB);
  ASSERT_NE(get(48 * kMiB), 0u);
  const uint64_t before = created();
  ASSERT_NE(get(14 * kMiB), 0u);
  EXPECT_EQ(created() - before, 7u);
  EXPECT_EQ(memory().reserved, 62 * kMiB);
}

TEST_F(LargeHandles, AreAsLargeAsTheirShareOfWhatIsLeft) {
  allocator->limit(kDevice, 64 * kMiB);
  ASSERT_NE(get(32 * kMiB), 0u);
  const uint64_t before = created();
  ASSERT_NE(get(16 * kMiB), 0u);
  EXPECT_EQ(created() - before, 4u) << "a fourth of the other 16 MiB each";
}

// The driver has less than it said, because others take of it too.
TEST_F(LargeHandles, AreSinglePagesWhereTheDriverHasNoRoomForMore) {
  ASSERT_NE(get(16 * kMiB), 0u);
  const Memory now = memory();
  control->fail_call(1, "cuMemCreate", 0, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_NE(get(16 * kMiB), 0u) << "asked for as single pages";
  EXPECT_EQ(memory().reserved, now.reserved + 16 * kMiB);
}

TEST_F(LargeHandles, GoBackWholeAndComeAgainInPieces) {
  allocator->limit(kDevice, 64 * kMiB);
  std::vector<uint64_t> blocks;
  const uint64_t large = get(16 * kMiB);
  for (int i = 0; i < 6; ++i) blocks.push_back(get(8 * kMiB));
  put(large);
  for (size_t i = 0; i < blocks.size(); i += 2) put(blocks[i]);
  // 40 MiB are idle in four places.
  const uint64_t whole = get(40 * kMiB);
  ASSERT_NE(whole, 0u);
  launch({}, whole, 40 * kMiB);
  EXPECT_EQ(memory().reserved, 64 * kMiB);
  EXPECT_EQ(memory().stranded, 0u);
  EXPECT_EQ(memory().rescued, 1u);
}

// As long as a block lies on a part of it, a handle stays whole, and the rest of it serves only beside it.
TEST_F(LargeHandles, StrandWhatIsIdleOfThemBesideAPartInUse) {
  put(get(16 * kMiB));
  const uint64_t part = get(4 * kMiB);
  ASSERT_NE(part, 0u);
  EXPECT_EQ(memory().stranded, 12 * kMiB);
  EXPECT_EQ(memory().cached, 0u);
  EXPECT_NE(get(12 * kMiB), 0u) << "beside it they serve";
  EXPECT_EQ(memory().reserved, 16 * kMiB);
}

TEST_F(LargeHandles, AreGivenBackByAnEmptiedCache) {
  put(get(100 * kMiB));
  EXPECT_EQ(allocator->empty_cache(kDevice), 100 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, 0u);
}

// Each handle has one descriptor, with which a block's neighbours are shared too.
TEST_F(LargeHandles, AreSharedWhole) {
  put(get(16 * kMiB));
  const uint64_t first = get(3 * kMiB), second = get(5 * kMiB);
  SharedBlock one, two;
  std::string why;
  ASSERT_EQ(allocator->share(first, &one, &why), Status::kOk) << why;
  ASSERT_EQ(allocator->share(second, &two, &why), Status::kOk) << why;
  ASSERT_EQ(one.pages.size(), 1u);
  ASSERT_EQ(two.pages.size(), 1u);
  EXPECT_EQ(one.pages[0].bytes, 16 * kMiB);
  EXPECT_EQ(one.pages[0].serial, two.pages[0].serial);
  EXPECT_EQ(two.offset, second - first);
  uint64_t mapped = 0;
  ASSERT_EQ(allocator->map_shared(kDevice, two.pages, &mapped, &why), Status::kOk) << why;
  EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk);
  put(first);
  put(second);
  EXPECT_EQ(allocator->shared_descriptor(one.pages[0].serial), -1);
}

}  // namespace
}  // namespace spillway::testing
