// Handles of several pages, without a device: what of an arena is theirs, which are idle whole, how large the
// next one is, and which fill a place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "allocator/pages/supply/handle_sizes.h"
#include "allocator/pages/supply/page_reservation.h"
#include "allocator/tiling/tiling.h"
#include "tests/allocator/parts/parts.h"

namespace spillway {
namespace {

class HandlesTest : public ::testing::Test {
 protected:
  // A live block on handles of so many pages each.
  Block* allocate(const std::vector<uint64_t>& pages) {
    Arena& arena = tiling_.arena_for(StreamId{1}, 0, false);
    if (arena.segments().empty()) {
      EXPECT_TRUE(arena.add_segment({kBase, kBase + 64 * kPage}));
    }
    std::vector<driver::Page> handles;
    uint64_t bytes = 0;
    for (const uint64_t count : pages) {
      handles.push_back({++last_, count * kPage});
      bytes += count * kPage;
    }
    std::vector<AddressRange> voids;
    const std::optional<Placement> place = arena.plan(bytes, bytes, 0);
    EXPECT_TRUE(place);
    Block* claim = arena.claim(*place, &voids);
    EXPECT_EQ(voids.size(), 1u);
    set_pages(arena, voids.front().begin, handles);
    return arena.finish(claim, place->address, bytes, bytes);
  }
  Arena& arena() { return tiling_.arena_for(StreamId{1}, 0, false); }
  Block* free(Block* block) { return arena().put_hole(block, 0); }

  StreamKnowledge streams_;
  Tiling tiling_{0, kPage, streams_};
  CUmemGenericAllocationHandle last_ = 0;
};

TEST_F(HandlesTest, AnAddressBelongsToAWholeHandle) {
  const Block* block = allocate({4, 1, 3});
  EXPECT_EQ(arena().handle_at(block->address + 2 * kPage).begin, block->address);
  EXPECT_EQ(arena().handle_at(block->address + 2 * kPage).bytes(), 4 * kPage);
  EXPECT_EQ(arena().handle_at(block->address + 4 * kPage).bytes(), kPage);
  const std::vector<driver::Page> all = handles_in(arena(), range_of(block));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].handle, 3u);
  EXPECT_EQ(all[2].bytes, 3 * kPage);
  EXPECT_EQ(arena().handle_at(block->end()).bytes(), kPage) << "where nothing is mapped, the page alone";
}

TEST_F(HandlesTest, IdleIsOnlyWhatIsIdleWhole) {
  Block* hole = free(allocate({4, 4, 4}));
  EXPECT_EQ(tiling_.idle_bytes().all, 12 * kPage);
  arena().take(hole, 2 * kPage, 1);
  EXPECT_EQ(tiling_.idle_bytes().all, 8 * kPage) << "half of the first handle is in use";
}

TEST_F(HandlesTest, PinnedOnesStayThoughNothingIsOnThem) {
  static uint64_t pinned = 0;
  static const std::atomic<Pins (*)()> pins{[] {
    Pins one;
    one.add(pinned, 1);
    return one;
  }};
  tiling_.follow_pins(&pins);
  Block* hole = free(allocate({2, 3, 4, 3}));
  pinned = hole->address + 6 * kPage;  // in the handle of four
  EXPECT_EQ(tiling_.idle_bytes().all, 5 * kPage) << "the longer run beside it";
  std::vector<IdleRange> taken = tiling_.take_idle(5 * kPage);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].range.end, kBase + 5 * kPage);
  EXPECT_EQ(tiling_.idle_bytes().all, 3 * kPage);
  taken = tiling_.take_idle(UINT64_MAX);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].range.begin, kBase + 9 * kPage);
  EXPECT_TRUE(tiling_.take_idle(kPage).empty()) << "the pinned one is left";
  tiling_.follow_pins(nullptr);
  EXPECT_EQ(tiling_.take_idle(kPage).size(), 1u);
}

TEST_F(HandlesTest, WholeHandlesAreTakenThatFit) {
  free(allocate({4, 2, 1}));
  const std::vector<IdleRange> taken = tiling_.take_idle(5 * kPage);
  uint64_t bytes = 0;
  for (const IdleRange& range : taken) bytes += range.range.bytes();
  EXPECT_EQ(bytes, 7 * kPage)
      << "three pages are no handle's: the one of four is taken too, and divided later";
}

TEST_F(HandlesTest, TheSmallestHandleThatIsTooLargeIsTaken) {
  free(allocate({8}));
  allocate({1});
  free(allocate({4}));
  const std::vector<IdleRange> taken = tiling_.take_idle(kPage);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].range.bytes(), 4 * kPage);
}

TEST_F(HandlesTest, APlaceMakesTheHandlesThatItTouchesUseless) {
  Block* first = allocate({4, 4});
  allocate({1});
  free(first);
  // Ten pages at the open end are new; inside the hole nothing is large enough.
  const std::optional<Placement> place = arena().plan(10 * kPage, 2 * kPage, 8 * kPage);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->need_bytes, 10 * kPage);
  EXPECT_EQ(place->idle_bytes, 0u);
}

TEST_F(HandlesTest, AReservationFillsRunsFromItsBack) {
  PageReservation own;
  for (const uint64_t count : {5, 1, 2, 4}) own.add(driver::Page{count, count * kPage});
  const std::array runs = {4 * kPage, 3 * kPage};
  EXPECT_TRUE(own.fills(runs));
  EXPECT_FALSE(own.fills(std::array{3 * kPage}));
  EXPECT_FALSE(own.fills(std::array{4 * kPage, 100 * kPage}));
  const std::vector<driver::Page> last = own.take_last(7 * kPage);
  EXPECT_THAT(last, ::testing::ElementsAre(::testing::Field(&driver::Page::handle, 4u),
                                           ::testing::Field(&driver::Page::handle, 2u),
                                           ::testing::Field(&driver::Page::handle, 1u)));
  EXPECT_EQ(own.in_pages(), 5 * kPage);
}

TEST(HandleSizesTest, AreLargeWhileMuchIsFreeAndSmallAtTheEnd) {
  HandleSizes sizes(kPage, {.most_bytes = 16 * kPage, .share = 8});
  EXPECT_TRUE(sizes.must_ask());
  sizes.see_free(512 * kPage);
  EXPECT_FALSE(sizes.must_ask());
  EXPECT_EQ(sizes.next(100 * kPage, UINT64_MAX), 16 * kPage);
  EXPECT_EQ(sizes.next(3 * kPage, UINT64_MAX), 3 * kPage) << "no larger than the place";
  EXPECT_EQ(sizes.next(100 * kPage, 80 * kPage), 10 * kPage) << "an eighth of what the limit leaves";
  sizes.created(480 * kPage);
  EXPECT_EQ(sizes.next(100 * kPage, UINT64_MAX), 4 * kPage) << "an eighth of what the card has";
  EXPECT_TRUE(sizes.must_ask()) << "others may have taken or given back";
  sizes.see_free(512 * kPage);
  sizes.refused();
  EXPECT_EQ(sizes.next(100 * kPage, UINT64_MAX), kPage) << "it had less than it said";
  sizes.released(80 * kPage);
  EXPECT_EQ(sizes.next(100 * kPage, UINT64_MAX), 10 * kPage);
}

TEST(HandleSizesTest, SinglePagesNeedNoAnswer) {
  const HandleSizes sizes(kPage, {.most_bytes = kPage, .share = 1});
  EXPECT_FALSE(sizes.must_ask());
  EXPECT_EQ(sizes.next(100 * kPage, UINT64_MAX), kPage);
}

}  // namespace
}  // namespace spillway
