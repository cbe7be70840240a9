// Blocks of which none has a page to itself: their common pages go to the host together, come back together,
// and stay as long as one of the blocks does.
#include <string>

#include "tests/sanitized.h"
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

constexpr uint64_t kBlock = 9 * kMiB / 8;  // as a matrix of 768 x 768 numbers of two bytes

class CommonPages : public Spill {
 protected:
  uint64_t on_host() { return spilled_bytes(*allocator, Tier::kHost); }
  // The whole limit but for a page.
  std::vector<uint64_t> fill_the_device() { return blocks_of(kBlock, 26); }
  void use_anywhere(const std::vector<uint64_t>& blocks) {
    for (const uint64_t block : blocks) launch(StreamId{}, block, kBlock, 1);
    table.cuCtxSynchronize();
    EXPECT_EQ(text(control->violations), "");
  }
  // When nothing was used a moment ago.
  uint64_t get_later(uint64_t bytes) {
    let_time_pass();
    return get(bytes);
  }
  // Frees each n-th; the others are returned.
  std::vector<uint64_t> put_each(const std::vector<uint64_t>& blocks, size_t n) {
    std::vector<uint64_t> kept;
    for (size_t i = 0; i < blocks.size(); ++i)
      if (i % n == 0)
        put(blocks[i]);
      else
        kept.push_back(blocks[i]);
    return kept;
  }
  void bring_back() {
    for (int i = 0; i < 10 && returnable_bytes(*allocator, kDevice) == 0; ++i) let_time_pass(5'000);
    while (unspill(*allocator, kDevice) != 0) {
    }
  }
};

TEST_F(CommonPages, GoWhereNoBlockHasAPageToItself) {
  const auto blocks = fill_the_device();
  const uint64_t more = get_later(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_LE(memory().reserved, 32 * kMiB);
  EXPECT_GE(memory().spilled, 16 * kMiB);
  EXPECT_EQ(on_host(), memory().spilled) << "each byte of these pages is in use";
  use_anywhere(blocks);
  put(more);
  for (const uint64_t block : blocks) put(block);
  let_time_pass();
  EXPECT_EQ(on_host(), 0u);
  EXPECT_NE(get(32 * kMiB), 0u) << "the pages behind freed blocks are the device's again";
}

TEST_F(CommonPages, StayUntilTheLastOfTheirBlocksIsFreed) {
  const auto blocks = fill_the_device();
  const uint64_t more = get_later(28 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  const uint64_t all = on_host();
  const auto kept = put_each(blocks, 2);
  let_time_pass();
  check();
  EXPECT_EQ(on_host(), all) << "a block that is still there lies on each";
  EXPECT_LT(memory().spilled, all) << "what freed blocks have left is in no use";
  EXPECT_EQ(memory().pending, 0u) << "and these are free";
  use_anywhere(kept);
  for (const uint64_t block : kept) put(block);
  let_time_pass();
  EXPECT_EQ(on_host(), 0u);
  put(more);
  EXPECT_NE(get(32 * kMiB), 0u) << failure->text;
}

TEST_F(CommonPages, ComeBackWithWhatFreedBlocksHaveLeftOnThem) {
  const auto blocks = fill_the_device();
  const uint64_t more = get_later(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  const auto kept = put_each(blocks, 3);
  put(more);
  bring_back();
  check();
  EXPECT_EQ(on_host(), 0u);
  EXPECT_EQ(memory().spilled, 0u);
  use_anywhere(kept);
  for (size_t i = 0; i < blocks.size(); i += 3)
    EXPECT_NE(get(kBlock), 0u) << "where one was freed another fits: " << failure->text;
}

TEST_F(CommonPages, StayWhereOneOfTheirBlocksMust) {
  static uint64_t pinned = 0;
  const auto blocks = fill_the_device();
  set_pins(*allocator, [] {
    Pins pins;
    pins.add(pinned, 1);
    return pins;
  });
  SharedBlock shared;
  std::string why;
  ASSERT_EQ(allocator->share(blocks[4], &shared, &why), Status::kOk) << why;
  pinned = blocks[20] + kBlock / 2;
  let_time_pass();
  EXPECT_EQ(get(28 * kMiB), 0u) << "the two and their neighbours' ends stay";
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  SharedBlock again;
  EXPECT_EQ(allocator->share(blocks[4], &again, &why), Status::kOk) << "it lies on the device: " << why;
}

TEST_F(CommonPages, ComeBackForABlockThatIsToBeShared) {
  const auto blocks = fill_the_device();
  const uint64_t more = get_later(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  const uint64_t all = on_host();
  put(more);
  SharedBlock shared;
  std::string why;
  for (const uint64_t block : blocks) ASSERT_EQ(allocator->share(block, &shared, &why), Status::kOk) << why;
  check();
  EXPECT_GT(all, 0u);
  EXPECT_EQ(on_host(), 0u);
  EXPECT_EQ(memory().spilled, 0u);
}

// Each page has a live block and a free one, so that no page is idle.
TEST_F(CommonPages, GoAlsoWhereSomeOfThemIsFree) {
  const auto blocks = blocks_of(kPage / 2, 32);
  for (size_t i = 0; i < blocks.size(); i += 2) put(blocks[i]);
  const uint64_t more = get_later(24 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  check();
  EXPECT_EQ(memory().spilled, on_host() / 2);
  EXPECT_GE(on_host(), 24 * kMiB);
  for (size_t i = 1; i < blocks.size(); i += 2) launch(StreamId{}, blocks[i], kPage / 2, 1);
  table.cuCtxSynchronize();
  put(more);
  bring_back();
  check();
  EXPECT_EQ(on_host(), 0u);
  for (size_t i = 0; i < blocks.size(); i += 2) EXPECT_NE(get(kPage / 2), 0u) << failure->text;
  EXPECT_LE(memory().reserved, 32 * kMiB);
}

TEST_F(CommonPages, StayWhereFreeMemoryOnThemIsPinned) {
  static std::vector<uint64_t> pinned;
  const auto blocks = pinned = blocks_of(kPage / 2, 32);
  for (size_t i = 0; i < blocks.size(); i += 2) put(blocks[i]);
  let_time_pass();
  set_pins(*allocator, [] {
    Pins pins;
    for (size_t i = 0; i < pinned.size(); i += 2) pins.add(pinned[i], 1);
    return pins;
  });
  EXPECT_EQ(get(24 * kMiB), 0u) << "who was given its physical memory goes on to use that";
}

// Whatever call of the driver's fails, they are where they were, or there.
TEST_F(CommonPages, AreWholeWhateverFails) {
  uint64_t fired = 0;
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemcpyAsync"}) {
    for (uint64_t nth = 1; nth < 30; nth += kNextFailing) {
      const auto blocks = blocks_of(kPage / 2, 32);
      const auto kept = put_each(blocks, 4);
      let_time_pass();
      const uint64_t before = counts().injected_failures;
      control->fail_call(nth, call, 0, CUDA_ERROR_OUT_OF_MEMORY);
      const uint64_t more = get(12 * kMiB);
      if (more != 0) put(more);
      bring_back();
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      fired += counts().injected_failures - before;
      check();
      const uint64_t again = get(12 * kMiB);
      ASSERT_NE(again, 0u) << "after a failure of " << call << " " << nth << ": " << failure->text;
      put(again);
      for (const uint64_t block : kept) put(block);
      let_time_pass();
      check();
      EXPECT_EQ(on_host(), 0u) << call << " " << nth;
      ASSERT_EQ(text(control->violations), "") << call << " " << nth;
    }
  }
  EXPECT_GT(fired, 50 / kNextFailing);
}

// Each move stops the device, so that some go ahead of the next request.
TEST_F(CommonPages, GoAheadOfTheNextRequestToo) {
  allocator->limit(kDevice, 128 * kMiB);
  blocks_of(kBlock, 112);
  let_time_pass();
  ASSERT_NE(get(4 * kMiB), 0u) << failure->text;
  EXPECT_GE(on_host(), 6 * kMiB) << "a 32nd of the limit more than was short";
  const uint64_t rescued = memory().rescued;
  EXPECT_EQ(rescued, 1u);
  ASSERT_NE(get(4 * kMiB), 0u) << failure->text;
  EXPECT_EQ(memory().rescued, rescued) << "no second stop";
}

TEST_F(CommonPages, GoOnlyWhereOwnPagesDoNotSuffice) {
  const uint64_t large = get(14 * kMiB);
  const auto small = blocks_of(kBlock, 14);
  let_time_pass();
  ASSERT_NE(get(8 * kMiB), 0u) << failure->text;
  put(large);
  let_time_pass();
  EXPECT_EQ(on_host(), 0u) << "all that went was the large one's";
}

}  // namespace
}  // namespace spillway::testing
