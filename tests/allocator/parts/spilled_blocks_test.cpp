// What is known of blocks in other tiers, without a device.
#include "allocator/tiers/spilled_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/allocator/parts/parts.h"

namespace spillway {
namespace {

constexpr DeviceId kPeerDevice{1};

class SpilledBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    block_.address = kBase;
    block_.size = 8 * kPage;
    block_.tag = 8 * kPage - 100;  // what the program asked for
    block_.state = BlockState::kLive;
  }
  static AddressRange pages(uint64_t from, uint64_t to) { return {kBase + from * kPage, kBase + to * kPage}; }
  Move going(AddressRange range, Tier tier) {
    Move move;
    move.block = &block_;
    move.range = range;
    move.tier = tier;
    move.peer = kPeerDevice;
    move.to = {{5, range.bytes()}};
    return move;
  }
  // What goes, from its claim to its end.
  void spill(AddressRange range, Tier tier) {
    spilled_.begin_moves({going(range, tier)});
    spilled_.add(going(range, tier));
    EXPECT_FALSE(spilled_.end_move(&block_));
  }
  uint64_t guests() { return shared_.guests[static_cast<size_t>(kPeerDevice)]; }
  bool flagged() const { return (block_.shared & kSpilled) != 0; }

  driver::Table table_{};
  AllocatorContext shared_{table_};
  SpilledBlocks spilled_{shared_};
  Block block_{};
};

TEST_F(SpilledBlocksTest, ABlockIsFlaggedFromTheBeginningOfItsMove) {
  spilled_.begin_moves({going(pages(6, 8), Tier::kHost)});
  EXPECT_TRUE(flagged());
  EXPECT_TRUE(spilled_.find(&block_)->moving);
  EXPECT_FALSE(spilled_.end_move(&block_)) << "nothing went";
  EXPECT_FALSE(flagged());
  EXPECT_TRUE(spilled_.empty());
}

TEST_F(SpilledBlocksTest, PiecesComeBackInTheOrderThatKeepsTheRestTheEnd) {
  spill(pages(6, 8), Tier::kHost);
  spill(pages(3, 6), Tier::kPeer);
  EXPECT_EQ(spilled_.bytes(), 5 * kPage);
  EXPECT_EQ(spilled_.bytes(Tier::kHost), 2 * kPage);
  EXPECT_EQ(guests(), 3 * kPage);
  spilled_.remove(going(pages(3, 6), Tier::kPeer));
  EXPECT_EQ(spilled_.bytes(), 2 * kPage);
  EXPECT_EQ(guests(), 0u);
  EXPECT_EQ(spilled_.find(&block_)->pieces.back().range.begin, pages(6, 8).begin);
  EXPECT_EQ(spilled_.bytes(), spilled_.sum());
}

TEST_F(SpilledBlocksTest, ABlockThatIsFreedOnItsWayIsForTheEndOfTheMove) {
  spill(pages(6, 8), Tier::kHost);
  spilled_.begin_moves({going(pages(3, 6), Tier::kHost)});
  EXPECT_FALSE(spilled_.claim_freed(&block_)) << "somebody moves it";
  EXPECT_TRUE(spilled_.any_freed());
  EXPECT_TRUE(spilled_.claim_all_freed().empty());
  EXPECT_TRUE(spilled_.end_move(&block_)) << "and frees it now";
  EXPECT_TRUE(spilled_.claim_all_freed().empty()) << "nobody else does";
}

TEST_F(SpilledBlocksTest, ABlockThatLiesStillIsClaimedByWhoFreesIt) {
  EXPECT_TRUE(spilled_.claim_freed(&block_)) << "it lies on the device";
  spill(pages(6, 8), Tier::kHost);
  EXPECT_TRUE(spilled_.claim_freed(&block_));
  EXPECT_FALSE(spilled_.claim_freed(&block_)) << "once";
}

TEST_F(SpilledBlocksTest, AGuestIsNoLongerCountedOnceItsMemoryIsGone) {
  spill(pages(6, 8), Tier::kPeer);
  ASSERT_EQ(guests(), 2 * kPage);
  spilled_.note_gone(spilled_.at(&block_).pieces.back());
  EXPECT_EQ(guests(), 0u);
  EXPECT_EQ(spilled_.bytes(Tier::kPeer), 0u);
  EXPECT_EQ(spilled_.forget(&block_).size(), 1u);
  EXPECT_EQ(guests(), 0u) << "not twice";
  EXPECT_EQ(spilled_.bytes(), 0u);
  EXPECT_TRUE(spilled_.forget(&block_).empty());
}

TEST_F(SpilledBlocksTest, AGuestThatGoesToTheHostIsThePeersNoMore) {
  spill(pages(6, 8), Tier::kPeer);
  Move move{.block = &block_, .range = pages(6, 8), .tier = Tier::kHost, .was = Tier::kPeer};
  move.to = {{9, 2 * kPage}};
  spilled_.went_to_host(move);
  EXPECT_EQ(guests(), 0u);
  EXPECT_EQ(spilled_.bytes(Tier::kHost), 2 * kPage);
  EXPECT_EQ(spilled_.find(&block_)->pieces.back().pages.front().handle, 9u);
}

TEST_F(SpilledBlocksTest, WhatLiesElsewhereIsNotOfThisDevicesMemory) {
  spill(pages(6, 8), Tier::kHost);
  Memory memory{.live = block_.tag, .rounding = 100};
  spilled_.leave_out(&memory);
  EXPECT_EQ(memory.live, 6 * kPage);
  EXPECT_EQ(memory.rounding, 0u);
  EXPECT_EQ(memory.spilled, 2 * kPage);
  block_.state = BlockState::kPending;
  Memory later{.pending = block_.size};
  spilled_.leave_out(&later);
  EXPECT_EQ(later.pending, 6 * kPage);
  EXPECT_EQ(later.spilled, 0u) << "in use is only what is live";
  EXPECT_EQ(spilled_.pending_bytes(), 2 * kPage);
}

// Two blocks that meet in the middle of a page.
class CommonPieceTest : public SpilledBlocksTest {
 protected:
  void SetUp() override {
    SpilledBlocksTest::SetUp();
    block_.size = block_.tag = 3 * kPage / 2;
    neighbour_ = block_;
    neighbour_.address = block_.end();
    neighbour_.tag -= 100;
  }
  Move both() {
    Move move = going(pages(1, 2), Tier::kHost);
    move.common = true;
    move.others = {&neighbour_};
    return move;
  }
  void spill_both() {
    spilled_.begin_moves({both()});
    spilled_.add(both());
    for (Block* block : {&block_, &neighbour_}) EXPECT_FALSE(spilled_.end_move(block));
  }
  Block neighbour_{};
};

TEST_F(CommonPieceTest, IsEachBlocksByItsShare) {
  spill_both();
  EXPECT_EQ(spilled_.bytes(), kPage);
  EXPECT_EQ(spilled_.bytes(Tier::kHost), kPage);
  Memory memory{.live = block_.tag + neighbour_.tag, .rounding = 100};
  spilled_.leave_out(&memory);
  EXPECT_EQ(memory.spilled, kPage);
  EXPECT_EQ(memory.live, 2 * kPage - 100);
  EXPECT_EQ(memory.rounding, 100u) << "the neighbour's end lies on the device";
  neighbour_.state = BlockState::kPending;
  Memory later{.live = block_.tag, .pending = neighbour_.size};
  spilled_.leave_out(&later);
  EXPECT_EQ(later.live, kPage);
  EXPECT_EQ(later.pending, kPage);
}

TEST_F(CommonPieceTest, ClaimsAllItsBlocksForAMove) {
  spilled_.begin_moves({both()});
  EXPECT_FALSE(spilled_.claim_freed(&neighbour_)) << "it is moved";
  spilled_.add(both());
  EXPECT_TRUE(spilled_.any_moving(spilled_.common().begin()->second));
  EXPECT_FALSE(spilled_.end_move(&block_));
  EXPECT_TRUE(spilled_.end_move(&neighbour_)) << "and freed now";
}

TEST_F(CommonPieceTest, FlagsNoBlockThatIsFreedAlready) {
  spill_both();
  neighbour_.state = BlockState::kPending;
  neighbour_.shared = 0;
  spilled_.begin_moves({return_of(spilled_.common().begin()->second)});
  EXPECT_EQ(neighbour_.shared, 0u) << "the next block there would have the flag";
}

TEST_F(CommonPieceTest, IsTheLastBlocksOwnWhenTheOthersAreGone) {
  spill_both();
  ASSERT_TRUE(spilled_.claim_freed(&neighbour_));
  EXPECT_FALSE(spilled_.adopt_common(&neighbour_)) << "the other one needs it";
  EXPECT_TRUE(spilled_.forget(&neighbour_).empty());
  EXPECT_EQ(spilled_.bytes(), kPage / 2);
  EXPECT_EQ(spilled_.bytes(Tier::kHost), kPage) << "as long as anybody needs it";
  EXPECT_EQ(spilled_.bytes(), spilled_.sum());
  ASSERT_TRUE(spilled_.claim_freed(&block_));
  EXPECT_TRUE(spilled_.adopt_common(&block_));
  EXPECT_EQ(spilled_.forget(&block_).size(), 1u);
  EXPECT_EQ(spilled_.bytes(), 0u);
  EXPECT_EQ(spilled_.bytes(Tier::kHost), 0u);
  EXPECT_TRUE(spilled_.empty());
}

TEST_F(CommonPieceTest, ComesBackForAll) {
  spill_both();
  const Move back = return_of(spilled_.common().begin()->second);
  EXPECT_EQ(back.was, Tier::kHost);
  EXPECT_EQ(back.range.begin, pages(1, 2).begin);
  spilled_.begin_moves({back});
  spilled_.remove(back);
  EXPECT_FALSE(spilled_.end_move(&block_));
  EXPECT_TRUE(flagged() == false && (neighbour_.shared & kSpilled) != 0) << "its move has not ended";
  EXPECT_FALSE(spilled_.end_move(&neighbour_));
  EXPECT_TRUE(spilled_.empty());
  EXPECT_EQ(spilled_.bytes(), 0u);
}

TEST_F(SpilledBlocksTest, NothingIsLeftAtTheEnd) {
  spill(pages(6, 8), Tier::kPeer);
  EXPECT_EQ(spilled_.forget_all().size(), 1u);
  EXPECT_TRUE(spilled_.empty());
  EXPECT_EQ(guests(), 0u);
  EXPECT_EQ(spilled_.bytes(), 0u);
}

}  // namespace
}  // namespace spillway
