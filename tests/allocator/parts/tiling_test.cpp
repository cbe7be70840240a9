// Arenas and their blocks, without a device: addresses are made up, and pages are numbers.
#include "allocator/tiling/tiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/allocator/parts/parts.h"

namespace spillway {
namespace {

constexpr StreamId kStream{1}, kOther{2};

class TilingTest : public ::testing::Test {
 protected:
  // An arena with address space of its own.
  Arena& arena(StreamId stream, uint64_t pool = 0) {
    Arena& made = tiling_.arena_for(stream, pool, false);
    if (made.segments().empty()) {
      EXPECT_TRUE(made.add_segment({next_, next_ + 64 * kPage}));
      next_ += 128 * kPage;
    }
    return made;
  }
  // A live block of so many pages, on pages that are mapped for it.
  Block* allocate(Arena& arena, uint64_t pages) {
    const uint64_t bytes = pages * kPage;
    std::vector<AddressRange> voids;
    const std::optional<Placement> place = arena.plan(bytes, bytes, 0);
    EXPECT_TRUE(place);
    Block* claim = arena.claim(*place, &voids);
    for (const AddressRange& range : voids)
      for (uint64_t at = range.begin; at < range.end; at += kPage)
        arena.set_pages({at, at + kPage}, ++last_page_);
    return arena.finish(claim, place->address, bytes, bytes);
  }
  // Live blocks with a live page between each two, so that they stay apart; all are freed.
  std::vector<Block*> free_apart(Arena& arena, const std::vector<uint64_t>& pages) {
    std::vector<Block*> blocks;
    for (const uint64_t count : pages) {
      blocks.push_back(allocate(arena, count));
      allocate(arena, 1);
    }
    for (Block*& block : blocks) block = arena.put_hole(block, ++order_);
    return blocks;
  }
  static void expect_whole(const Tiling& tiling) {
    for (const auto& arena : tiling.arenas()) {
      Recount count;
      EXPECT_EQ(arena->check(&count), "");
    }
  }

  StreamKnowledge streams_;
  Tiling tiling_{0, kPage, streams_};
  uint64_t next_ = kBase, last_page_ = 0, order_ = 0;
};

TEST_F(TilingTest, EachStreamPoolAndKindHasAnArenaOfItsOwn) {
  Arena& first = tiling_.arena_for(kStream, 0, false);
  EXPECT_NE(&first, &tiling_.arena_for(kStream, 0, true));
  EXPECT_NE(&first, &tiling_.arena_for(kOther, 0, false));
  EXPECT_NE(&first, &tiling_.arena_for(kStream, 5, false));
  EXPECT_EQ(&first, &tiling_.arena_for(kStream, 0, false));
  EXPECT_EQ(tiling_.arenas().size(), 4u);
}

TEST_F(TilingTest, BlocksAreVisitedByArenaAndAddressPastArenasWithoutAny) {
  Block* first = allocate(arena(kStream), 1);
  Block* second = allocate(arena(kStream), 2);
  tiling_.arena_for(kOther, 0, true);  // has no address space
  Block* third = allocate(arena(kOther), 1);
  std::vector<Block*> live;
  for (Block* block : tiling_.blocks())
    if (block->state == BlockState::kLive) live.push_back(block);
  EXPECT_THAT(live, ::testing::ElementsAre(first, second, third));
  EXPECT_EQ(Tiling(0, kPage, {}).blocks().begin() != Tiling(0, kPage, {}).blocks().end(), false);
}

TEST_F(TilingTest, ABlockIsFoundByAnyOfItsAddresses) {
  PageMap map;
  Block* block = allocate(arena(kStream), 3);
  ASSERT_TRUE(map.prepare(block->address, block->size, false));
  map.set(block->address, block);
  EXPECT_EQ(tiling_.block_at(block->address, map), block);
  EXPECT_EQ(tiling_.block_at(block->end() - 1, map), block);
  EXPECT_NE(tiling_.block_at(block->end(), map), block);
  EXPECT_EQ(tiling_.block_at(kBase - 1, map), nullptr);
}

TEST_F(TilingTest, IdlePagesGoFromTheLargestHolesAndOnlyWhereNothingCanTouchThem) {
  Arena& here = arena(kStream);
  free_apart(here, {2, 4, 3});
  EXPECT_EQ(tiling_.idle_bytes().all, 9 * kPage);
  EXPECT_EQ(tiling_.idle_bytes().drained, 0u);
  EXPECT_TRUE(tiling_.take_idle(kPage).empty()) << "queued work may still touch them";
  tiling_.drained(here.stream(), order_);
  EXPECT_EQ(tiling_.idle_bytes().drained, 9 * kPage);
  std::vector<IdleRange> taken = tiling_.take_idle(5 * kPage);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].range.bytes(), 4 * kPage) << "the largest hole whole";
  EXPECT_EQ(taken[1].range.bytes(), kPage) << "and no more than is missing";
  EXPECT_EQ(tiling_.idle_bytes().all, 4 * kPage);
  for (const IdleRange& range : taken) here.restore(range.busy, order_);
  expect_whole(tiling_);
}

TEST_F(TilingTest, WhatOneStreamIsPastAnotherMayStillUse) {
  free_apart(arena(kStream), {2});
  free_apart(arena(kOther), {3});
  EXPECT_EQ(tiling_.most_undrained({}), &arena(kOther)) << "the one with the most to gain";
  EXPECT_EQ(tiling_.most_undrained({&arena(kOther)}), &arena(kStream));
  tiling_.drained(kOther, order_);
  EXPECT_EQ(tiling_.idle_bytes().drained, 3 * kPage);
  tiling_.drained({}, order_);
  EXPECT_EQ(tiling_.idle_bytes().drained, 5 * kPage);
  EXPECT_EQ(tiling_.most_undrained({}), nullptr);
}

TEST_F(TilingTest, APoolKeepsItsPagesUntilItIsReleased) {
  free_apart(arena(kStream, 7), {4});
  tiling_.all_is_drained(order_);
  EXPECT_EQ(tiling_.idle_bytes().all, 0u);
  ASSERT_TRUE(tiling_.set_flags(7, kPoolReleased));
  EXPECT_EQ(tiling_.idle_bytes().all, 4 * kPage);
  EXPECT_EQ(tiling_.idle_bytes().drained, 0u) << "a graph may still run from them";
  tiling_.all_is_drained(order_);
  EXPECT_TRUE(tiling_.take_idle(kPage, 6).empty());
  EXPECT_EQ(tiling_.take_idle(kPage, 7).size(), 1u);
}

TEST_F(TilingTest, TheAddressSpaceOfAPoolThatIsGoneServesTheNext) {
  Arena& before = arena(kStream, 7);
  ASSERT_TRUE(tiling_.set_flags(7, kPoolReleased));
  EXPECT_EQ(&tiling_.arena_for(kOther, 8, false), &before);
  EXPECT_EQ(before.pool(), 8u);
  EXPECT_EQ(tiling_.pools().flags_of(7), 0u) << "its number may be used again";
}

TEST_F(TilingTest, SingleHandlesAreForPoolsWithoutBlocks) {
  arena(kStream, 7);
  EXPECT_FALSE(tiling_.set_flags(7, kPoolSingleHandle));
  EXPECT_EQ(tiling_.pools().flags_of(7), 0u);
  EXPECT_TRUE(tiling_.set_flags(8, kPoolSingleHandle));
  EXPECT_EQ(tiling_.arena_for(kStream, 8, false).memory, PoolMemory::kWholeAllocations);
  EXPECT_FALSE(tiling_.set_flags(8, 0));
}

TEST_F(TilingTest, AWaitingRequestKeepsTheFreeBlocksThatFitIt) {
  Arena& here = arena(kStream);
  const std::vector<Block*> holes = free_apart(here, {2, 4});
  tiling_.keep(here, 3 * kPage);
  EXPECT_EQ(tiling_.find_hole(here, 3 * kPage), nullptr);
  EXPECT_EQ(tiling_.find_hole(here, 3 * kPage, true), holes[1]) << "its own";
  EXPECT_EQ(tiling_.find_hole(here, kPage), holes[0]) << "a smaller one is anybody's";
  EXPECT_EQ(tiling_.kept_bytes(arena(kOther), false), UINT64_MAX);
  tiling_.keep_nothing();
  EXPECT_EQ(tiling_.find_hole(here, 3 * kPage), holes[1]);
}

}  // namespace
}  // namespace spillway
