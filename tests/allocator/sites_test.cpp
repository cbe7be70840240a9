// Which places of the program hold the memory, as far as the allocator is told.
#include "tests/allocator/simulated.h"

#include "allocator/accounting/sites_by_size.h"

#include <gmock/gmock.h>

namespace spillway {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using namespace ::spillway::testing;

class Sites : public SimulatedDevice {
 protected:
  uint64_t block_of(uint64_t site, uint64_t bytes) {
    const uint64_t address = get(bytes);
    EXPECT_EQ(allocator->set_site(address, site, bytes), Status::kOk);
    return address;
  }
  void check() {
    std::string broken;
    EXPECT_TRUE(allocator->check_invariants(&broken)) << broken;
  }
};

TEST_F(Sites, SumsBySiteLargestFirst) {
  block_of(7, kMiB);
  const uint64_t large = block_of(9, 8 * kMiB);
  block_of(7, 2 * kMiB);
  EXPECT_THAT(allocator->holders(kDevice),
              ElementsAre(FieldsAre(9, 8 * kMiB, 1, _), FieldsAre(7, 3 * kMiB, 2, _)));
  check();
  ASSERT_EQ(allocator->free(large), Status::kOk);
  EXPECT_THAT(allocator->holders(kDevice), ElementsAre(FieldsAre(7, 3 * kMiB, 2, _)));
  check();
}

TEST_F(Sites, TheOldestBlockIsTheFirstThatIsLeft) {
  const uint64_t first = block_of(7, kMiB);
  const uint64_t oldest = allocator->holders(kDevice).front().oldest_order;
  block_of(7, kMiB);
  EXPECT_EQ(allocator->holders(kDevice).front().oldest_order, oldest);
  ASSERT_EQ(allocator->free(first), Status::kOk);
  EXPECT_GT(allocator->holders(kDevice).front().oldest_order, oldest);
}

TEST_F(Sites, ABlockThatWaitsForAnotherStreamIsNoLongerThePrograms) {
  const StreamId other = new_stream();
  const uint64_t address = block_of(7, 4 * kMiB);
  launch(other, address, kMiB);
  ASSERT_EQ(allocator->record_stream(address, other), Status::kOk);
  check();
  ASSERT_EQ(allocator->free(address), Status::kOk);
  EXPECT_TRUE(allocator->holders(kDevice).empty());
  check();
}

TEST_F(Sites, AnAddressGivenOutAgainHasNoSite) {
  const uint64_t address = block_of(7, 4 * kMiB);
  ASSERT_EQ(allocator->free(address), Status::kOk);
  ASSERT_EQ(get(4 * kMiB), address);
  EXPECT_TRUE(allocator->holders(kDevice).empty());
  check();
}

TEST_F(Sites, BlocksWhosePlaceWasNotTakenCountToThoseOfTheirSize) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(allocator->set_site(get(8 * kMiB), 7, 32 * kMiB), Status::kOk);  // stands for four
    ASSERT_EQ(allocator->set_site(get(8 * kMiB), 9, 16 * kMiB), Status::kOk);  // for two
  }
  for (int i = 0; i < 8; ++i) get(8 * kMiB);
  get(kMiB);  // no block of about its size is known
  EXPECT_THAT(allocator->holders(kDevice),
              ElementsAre(FieldsAre(7, 64 * kMiB, 8, _), FieldsAre(9, 32 * kMiB, 4, _)));
}

TEST_F(Sites, BlocksThatAreLikeOnesWithoutAPlaceHaveNone) {
  ASSERT_EQ(allocator->set_site(get(8 * kMiB), 0, 8 * kMiB), Status::kOk);
  get(8 * kMiB);
  EXPECT_TRUE(allocator->holders(kDevice).empty());
  block_of(7, 8 * kMiB);
  get(8 * kMiB);
  get(8 * kMiB);
  EXPECT_THAT(allocator->holders(kDevice), ElementsAre(FieldsAre(7, 16 * kMiB, 2, _)));
  check();
}

TEST(SitesBySize, ManyPlacesAreDealtToInProportion) {
  SitesBySize sites;
  constexpr uint64_t kPlaces = 60'000, kBlocks = 1'000'000;
  for (uint64_t site = 1; site <= kPlaces; ++site) sites.know(kMiB, site, site <= kPlaces / 2 ? 30 : 10);
  std::vector<uint64_t> dealt(kPlaces + 1);
  for (uint64_t i = 0; i < kBlocks; ++i) ++dealt.at(sites.deal(kMiB).value_or(0));
  EXPECT_EQ(dealt[0], 0u);
  EXPECT_NEAR(static_cast<double>(dealt[1]), 25.5, 1.5) << "three quarters of all, less the known one";
  EXPECT_NEAR(static_cast<double>(dealt[kPlaces]), 7.8, 1.5);
}

TEST_F(Sites, AreNeverMoreThanIsLive) {
  for (uint64_t i = 1; i <= 20; ++i) {
    const uint64_t address = get(i * 300 * kKiB);
    if (i % 4 == 0) {
      ASSERT_EQ(allocator->set_site(address, i % 8, 999 * kMiB), Status::kOk);
    }
  }
  uint64_t held = 0;
  for (const SiteHolding& holding : allocator->holders(kDevice)) held += holding.bytes;
  EXPECT_LE(held, memory().live);
  EXPECT_GT(held, memory().live / 4);
}

TEST_F(Sites, WhatIsNoLiveBlockHasNone) {
  const uint64_t address = get(kMiB);
  EXPECT_EQ(allocator->set_site(address + 512, 7, 1), Status::kNotFound);
  EXPECT_EQ(allocator->set_site(0, 7, 1), Status::kNotFound);
  ASSERT_EQ(allocator->free(address), Status::kOk);
  EXPECT_EQ(allocator->set_site(address, 7, 1), Status::kNotFound);
  EXPECT_TRUE(allocator->holders(kDevice).empty());
  EXPECT_TRUE(allocator->holders(DeviceId{63}).empty());
}

}  // namespace
}  // namespace spillway
