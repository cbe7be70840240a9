// What may be held of a device, without a device.
#include "allocator/pages/quota.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class QuotaTest : public ::testing::Test {
 protected:
  spillway_budget totals{.limit_bytes = 64 * kMiB, .reserve_bytes = 0, .taken_bytes = {}, .native_bytes = {}};
  spillway_budget* budget = nullptr;
  std::atomic<uint64_t> guests{0};
};

TEST_F(QuotaTest, TheLimitHoldsToTheByte) {
  Quota quota(0, budget, guests);
  quota.set_limit(10);
  EXPECT_FALSE(quota.draw(11));
  EXPECT_EQ(quota.held(), 0u) << "a draw in vain changes nothing";
  EXPECT_TRUE(quota.draw(10));
  EXPECT_FALSE(quota.draw(1));
  quota.give_back(4);
  EXPECT_EQ(quota.room(), 4u);
  quota.set_limit(0);
  EXPECT_EQ(quota.limit(), UINT64_MAX) << "no limit";
}

TEST_F(QuotaTest, ALimitBelowWhatIsHeldLeavesNoRoom) {
  Quota quota(0, budget, guests);
  EXPECT_TRUE(quota.draw(10));
  quota.set_limit(4);
  EXPECT_EQ(quota.room(), 0u);
  EXPECT_TRUE(quota.draw(0));
  EXPECT_FALSE(quota.draw(1));
}

TEST_F(QuotaTest, WhatGuestsTakeIsNoRoom) {
  Quota quota(0, budget, guests);
  quota.set_limit(10);
  guests = 7;
  EXPECT_EQ(quota.room(), 3u);
  guests = 12;
  EXPECT_EQ(quota.room(), 0u);
}

TEST_F(QuotaTest, TheProcessDrawsFromOneBudget) {
  budget = &totals;
  Quota quota(1, budget, guests);
  totals.taken_bytes[1] = 60 * kMiB;  // by calls of the driver
  EXPECT_FALSE(quota.draw(5 * kMiB));
  EXPECT_TRUE(quota.draw(4 * kMiB));
  EXPECT_EQ(totals.taken_bytes[1], 64 * kMiB);
  EXPECT_EQ(totals.taken_bytes[0], 0u);
  quota.give_back(4 * kMiB);
  EXPECT_EQ(totals.taken_bytes[1], 60 * kMiB);
}

TEST_F(QuotaTest, AReserveIsLeftOfTheBudgetAndOfTheCard) {
  budget = &totals;
  Quota quota(0, budget, guests);
  totals.reserve_bytes = 8 * kMiB;
  quota.see_free(100 * kMiB);
  EXPECT_EQ(quota.room(), 56 * kMiB) << "of the budget";
  quota.see_free(20 * kMiB);
  EXPECT_EQ(quota.room(), 12 * kMiB) << "of the card";
  EXPECT_TRUE(quota.draw(12 * kMiB));
  EXPECT_EQ(quota.room(), 0u);
  EXPECT_NE(quota.room_in_limit(), 0u);
  quota.see_free(4 * kMiB);
  EXPECT_EQ(quota.room(), 0u) << "less than the reserve is left";
  totals.reserve_bytes = 0;
  quota.see_free(UINT64_MAX);
  EXPECT_EQ(quota.room(), 52 * kMiB) << "without a reserve the driver says itself when it has no more";
}

TEST_F(QuotaTest, ACardThatDoesNotAnswerBoundsNothing) {
  budget = &totals;
  Quota quota(0, budget, guests);
  EXPECT_TRUE(quota.draw(32 * kMiB));
  totals.reserve_bytes = 8 * kMiB;
  quota.see_free(UINT64_MAX);
  quota.give_back(32 * kMiB);
  EXPECT_EQ(quota.room(), 56 * kMiB);
}

TEST_F(QuotaTest, WhatCallsOfTheDriverHadTakenBeforeIsNotCountedAgain) {
  budget = &totals;
  totals.native_bytes[0] = 5;
  Quota quota(0, budget, guests);
  EXPECT_EQ(quota.native_since_start(), 0u);
  totals.native_bytes[0] = 12;
  EXPECT_EQ(quota.native_since_start(), 7u);
  totals.native_bytes[0] = 2;
  EXPECT_EQ(quota.native_since_start(), 0u);
}

}  // namespace
}  // namespace spillway
