// What is known of single blocks: streams that they were recorded on, uses, sharing; without a device.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "allocator/sharing/exports.h"
#include "allocator/streams/recorded_streams.h"
#include "allocator/tiers/choice/access_frequency.h"
#include "allocator/tiers/registered_blocks.h"
#include "tests/allocator/parts/parts.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;

TEST(RecordedStreams, KeepsEachStreamOnceInOrderUntilTaken) {
  RecordedStreams recorded;
  Block block{}, other{};
  const RecordedStream third{StreamId{3}}, first{StreamId{1}};
  for (const RecordedStream& on : {third, first, third}) recorded.add(&block, on);
  EXPECT_TRUE(recorded.contains(&block));
  EXPECT_FALSE(recorded.contains(&other));
  EXPECT_THAT(recorded.take(&block), ElementsAre(third, first));
  EXPECT_TRUE(recorded.take(&block).empty());
}

TEST(RegisteredBlocks, AreFlaggedAndRegisteredOnce) {
  RegisteredBlocks registered;
  Block block{};
  block.shared = kOtherStreams;
  EXPECT_TRUE(registered.add(&block, 100));
  EXPECT_FALSE(registered.add(&block, 200));
  EXPECT_EQ(registered.find(&block)->bytes, 100u);
  EXPECT_EQ(block.shared, kOtherStreams | kRegistered);
  registered.remove(&block);
  EXPECT_EQ(registered.find(&block), nullptr);
  EXPECT_EQ(block.shared, kOtherStreams);
}

TEST(AccessFrequency, IsUsesForEachPlaceInTheOrderSinceTheyAreKnown) {
  AccessFrequency access;
  Block old{}, young{};
  AccessFrequency::begin(&old, 10);
  access.learn(100);
  AccessFrequency::begin(&young, 190);
  for (int i = 0; i < 4; ++i) access.touch(&old, 150 + i, {}), access.touch(&young, 195 + i, {});
  EXPECT_EQ(access.touch(&old, 153, {}), 0) << "the same use, told again";
  EXPECT_DOUBLE_EQ(access.of(&old, 200), 5.0 / 101) << "what was before nobody knows";
  EXPECT_DOUBLE_EQ(access.of(&young, 200), 5.0 / 11);
  EXPECT_TRUE(AccessFrequency::recent(&young, 200));
  EXPECT_FALSE(AccessFrequency::recent(&old, 153 + 64));
}

// A view of the block, an operator, and the product that it calls.
TEST(AccessFrequency, OfWhatIsToldAtOnePlaceTheMostReadsCount) {
  AccessFrequency access;
  Block block{};
  AccessFrequency::begin(&block, 10);
  access.learn(10);
  block.size = 16 << 20;
  EXPECT_EQ(access.touch(&block, 19, {}), 1);
  EXPECT_EQ(access.touch(&block, 19, {6 * block.size}), 5);
  EXPECT_EQ(access.touch(&block, 19, {2 * block.size}), 0);
  EXPECT_DOUBLE_EQ(access.of(&block, 19), 7.0 / 10);
  EXPECT_EQ(access.touch(&block, 20, {2 * block.size}), 2);
  EXPECT_DOUBLE_EQ(access.of(&block, 20), 9.0 / 11);
}

// One layer's part of a cache, or of weights that lie in one block; a view alone reads nothing.
TEST(AccessFrequency, CountsThePartOfABlockThatIsRead) {
  AccessFrequency access;
  Block block{};
  AccessFrequency::begin(&block, 10);
  block.size = 32 << 20;
  for (uint64_t launches = 1; launches <= 8; ++launches) {
    EXPECT_EQ(access.touch(&block, 10, {0, launches}), 0);
    EXPECT_EQ(access.touch(&block, 10, {block.size / 32, launches}), 1.0 / 16) << "parts of a 16th are whole";
  }
  EXPECT_DOUBLE_EQ(access.of(&block, 10), 1.5);
}

// As operators in place do: an optimizer's, on its states.
TEST(AccessFrequency, WorkAfterALaunchIsAnotherUse) {
  AccessFrequency access;
  Block block{};
  AccessFrequency::begin(&block, 10);
  for (uint64_t launches : {300, 300, 301, 301, 302}) access.touch(&block, 10, {.launches = launches});
  EXPECT_DOUBLE_EQ(access.of(&block, 10), 4.0);
}

TEST(AccessFrequency, SaysNothingOfAProgramThatWasHardlySeen) {
  AccessFrequency access;
  Block block{};
  AccessFrequency::begin(&block, 1);
  for (int i = 0; i < 63; ++i) access.touch(&block, 2, {});
  EXPECT_FALSE(access.knows_the_program());
  access.touch(&block, 2, {});
  EXPECT_TRUE(access.knows_the_program());
}

TEST(AccessFrequency, KeepsTheFrequencyWhenItsBitsAreFull) {
  AccessFrequency access;
  Block block{};
  AccessFrequency::begin(&block, 7);
  block.size = 16 << 20;
  EXPECT_EQ(access.touch(&block, 8, {UINT64_MAX - 1}), 65'535.0 / 16) << "the most at once";
  EXPECT_EQ(access.touch(&block, 8, {UINT64_MAX - 1}), 0);
  EXPECT_TRUE(AccessFrequency::recent(&block, 8)) << "reads do not run over into the place";
  EXPECT_EQ(AccessFrequency::born(&block), 7u) << "nor into the age";
  AccessFrequency::begin(&block, 1000);
  uint64_t order = 1000;
  for (int step = 0; step < 5'000'000; ++step) access.touch(&block, order += 4, {});
  EXPECT_NEAR(access.of(&block, order), 0.25, 0.001)
      << "one use in four places, for longer than there are bits for";
}

class ExportsTest : public ::testing::Test {
 protected:
  // Two live blocks, of which both lie on the middle one of three pages.
  void SetUp() override {
    Arena& arena = tiling_.arena_for(StreamId{}, 0, false);
    ASSERT_TRUE(arena.add_segment({kBase, kBase + 64 * kPage}));
    std::vector<AddressRange> voids;
    const std::optional<Placement> place = arena.plan(3 * kPage, 3 * kPage, 0);
    ASSERT_TRUE(place);
    Block* claim = arena.claim(*place, &voids);
    for (uint64_t i = 0; i < 3; ++i) arena.set_pages({kBase + i * kPage, kBase + (i + 1) * kPage}, 11 + i);
    Block* whole = arena.finish(claim, kBase, 3 * kPage, 3 * kPage);
    Block* hole = arena.put_hole(whole, 1);
    first_ = arena.take(hole, 3 * kPage / 2, 1);
    second_ = arena.take(arena.best(3 * kPage / 2), 3 * kPage / 2, 1);
  }
  std::vector<driver::Page> pages(const Block* block) {
    uint64_t offset = 0;
    return pages_of(tiling_.arena_of(block), block, &offset);
  }
  SharedBlock share(Block* block) {
    Exports::Map made;
    for (const driver::Page& page : pages(block))
      if (!exports_.contains(page.handle)) made[page.handle] = {open("/dev/null", O_RDONLY), ++serial_, 0};
    SharedBlock out;
    exports_.add(block, pages(block), made, &out);
    EXPECT_TRUE(made.empty());
    return out;
  }
  void end(Block* block, size_t descriptors) {
    const std::vector<int> gone = exports_.withdraw(tiling_, block);
    EXPECT_EQ(gone.size(), descriptors);
    for (const int descriptor : gone) EXPECT_EQ(close(descriptor), 0);
    block->shared = 0;
    EXPECT_EQ(exports_.check(tiling_), "");
  }

  StreamKnowledge streams_;
  Tiling tiling_{0, kPage, streams_};
  Exports exports_;
  Block *first_ = nullptr, *second_ = nullptr;
  uint64_t serial_ = 0;
};

TEST_F(ExportsTest, ABlockBeginsSomewhereInTheFirstOfItsPages) {
  uint64_t offset = 0;
  EXPECT_EQ(pages_of(tiling_.arena_of(second_), second_, &offset).size(), 2u);
  EXPECT_EQ(offset, kPage / 2);
}

TEST_F(ExportsTest, APageIsSharedUntilTheLastSharedBlockOnItIsFreed) {
  EXPECT_EQ(share(first_).pages.size(), 2u);
  EXPECT_EQ(share(second_).pages.size(), 2u);
  EXPECT_EQ(exports_.check(tiling_), "");
  end(first_, 1);
  end(second_, 2);
}

TEST_F(ExportsTest, ABlockThatIsSharedAgainCountsOnce) {
  const SharedBlock once = share(first_), again = share(first_);
  ASSERT_EQ(again.pages.size(), once.pages.size());
  EXPECT_EQ(again.pages[0].serial, once.pages[0].serial);
  end(first_, 2);
}

TEST_F(ExportsTest, WhoAsksGetsADescriptorOfItsOwn) {
  const SharedBlock shared = share(first_);
  const int own = exports_.duplicate(shared.pages[0].serial);
  EXPECT_GE(own, 0);
  EXPECT_NE(own, shared.pages[0].descriptor);
  EXPECT_NE(fcntl(own, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(close(own), 0);
  EXPECT_EQ(exports_.duplicate(99), -1);
  end(first_, 2);
}

TEST_F(ExportsTest, TheCheckFindsAnUnsharedBlockOnASharedPage) {
  share(first_);
  first_->shared = 0;
  EXPECT_NE(exports_.check(tiling_), "");
  first_->shared = kOtherProcesses;
  end(first_, 2);
}

}  // namespace
}  // namespace spillway
