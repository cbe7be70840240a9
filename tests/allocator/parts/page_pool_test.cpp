// The pages of a device, without a device: what is held is always mapped, spare or reserved.
#include "allocator/pages/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/allocator/parts/parts.h"

namespace spillway {
namespace {

class PagePoolTest : public ::testing::Test {
 protected:
  PagePool limited_to(uint64_t pages) {
    PagePool pool(Quota(0, budget_, guests_));
    pool.quota().set_limit(pages * kPage);
    return pool;
  }
  // As the driver would: what was promised becomes a page.
  void create(PageReservation* own, CUmemGenericAllocationHandle page) {
    own->promised_bytes -= kPage;
    own->add({page, kPage});
  }
  static void expect_closed(const PagePool& pool) { EXPECT_EQ(pool.held(), pool.mapped() + pool.unmapped()); }

  spillway_budget* budget_ = nullptr;
  std::atomic<uint64_t> guests_{0};
  PageReservation own_;
};

TEST_F(PagePoolTest, APromiseIsHeldAndHasItsLimit) {
  PagePool pool = limited_to(2);
  EXPECT_FALSE(pool.promise(&own_, 3 * kPage));
  EXPECT_EQ(own_.bytes(), 0u) << "in vain it changes nothing";
  EXPECT_TRUE(pool.promise(&own_, 2 * kPage));
  EXPECT_EQ(pool.held(), 2 * kPage);
  EXPECT_EQ(pool.obtainable(own_), 2 * kPage) << "what it has been promised, and no more";
  expect_closed(pool);
  pool.take_promise_back(&own_);
  EXPECT_EQ(pool.held(), 0u);
  expect_closed(pool);
}

TEST_F(PagePoolTest, PagesGoBehindAddressesAndBecomeSpareAfterwards) {
  PagePool pool = limited_to(2);
  ASSERT_TRUE(pool.promise(&own_, 2 * kPage));
  create(&own_, 7);
  create(&own_, 8);
  own_.take_last(kPage);
  pool.map(kPage);
  EXPECT_EQ(pool.mapped(), kPage);
  expect_closed(pool);
  pool.put_back(&own_);
  ASSERT_EQ(pool.spare_pages().size(), 1u);
  EXPECT_EQ(pool.spare_pages()[0].handle, 7u);
  EXPECT_EQ(pool.spare(), kPage);
  EXPECT_EQ(own_.bytes(), 0u);
  expect_closed(pool);
}

TEST_F(PagePoolTest, SparePagesGoFirstToWhoNeedsThem) {
  PagePool pool = limited_to(4);
  ASSERT_TRUE(pool.promise(&own_, 3 * kPage));
  for (CUmemGenericAllocationHandle page : {1, 2, 3}) create(&own_, page);
  pool.put_back(&own_);
  PageReservation other;
  pool.reserve_spare(&other, 2 * kPage, 2 * kPage);
  EXPECT_EQ(other.in_pages(), 2 * kPage) << "no more than it needs";
  EXPECT_EQ(pool.at_hand(other), 3 * kPage);
  EXPECT_EQ(pool.obtainable(other), 4 * kPage) << "with the one that the driver may still create";
  expect_closed(pool);
}

TEST_F(PagePoolTest, AHandleLargerThanWhatIsNeededStaysSpare) {
  PagePool pool = limited_to(8);
  ASSERT_TRUE(pool.promise(&own_, 5 * kPage));
  own_.promised_bytes = 0;
  own_.add({1, kPage});
  own_.add({2, 4 * kPage});
  pool.put_back(&own_);
  PageReservation other;
  pool.reserve_spare(&other, 2 * kPage, 8 * kPage);
  EXPECT_EQ(other.in_pages(), kPage) << "the other has four pages";
  EXPECT_EQ(pool.spare(), 4 * kPage);
  pool.reserve_spare(&other, 5 * kPage, 2 * kPage);
  EXPECT_EQ(other.in_pages(), kPage) << "no place has room for it";
  expect_closed(pool);
}

TEST_F(PagePoolTest, APageThatTheDriverDoesNotTakeBackStaysHeld) {
  PagePool pool = limited_to(2);
  ASSERT_TRUE(pool.promise(&own_, 2 * kPage));
  create(&own_, 1);
  create(&own_, 2);
  pool.put_back(&own_);
  const PagePool::Pages taken = pool.take_spare(UINT64_MAX);
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(pool.spare(), 0u);
  expect_closed(pool);
  pool.settle_release(kPage, {taken[1]});
  EXPECT_EQ(pool.held(), kPage);
  ASSERT_EQ(pool.spare_pages().size(), 1u);
  EXPECT_EQ(pool.spare_pages()[0].handle, taken[1].handle);
  expect_closed(pool);
}

TEST_F(PagePoolTest, ThePeakKnowsNoPromises) {
  PagePool pool = limited_to(8);
  ASSERT_TRUE(pool.promise(&own_, 4 * kPage));
  pool.take_promise_back(&own_);
  EXPECT_EQ(pool.peak_held(), 0u);
  ASSERT_TRUE(pool.promise(&own_, kPage));
  create(&own_, 1);
  pool.map(kPage);
  pool.note_peak();
  EXPECT_EQ(pool.peak_held(), kPage);
  pool.reset_peak();
  EXPECT_EQ(pool.peak_held(), kPage) << "what is held now";
}

TEST_F(PagePoolTest, AnAllocationOfTheDriversOwnIsMappedAndGoesAsAWhole) {
  PagePool pool = limited_to(4);
  ASSERT_TRUE(pool.promise(&own_, 3 * kPage));
  pool.map_promised(&own_, 3 * kPage);
  EXPECT_EQ(pool.mapped(), 3 * kPage);
  EXPECT_EQ(pool.peak_held(), 3 * kPage);
  expect_closed(pool);
  pool.allocation_is_gone(3 * kPage);
  EXPECT_EQ(pool.held(), 0u);
  expect_closed(pool);
}

}  // namespace
}  // namespace spillway
