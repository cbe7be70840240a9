// What a slow-down is predicted from: the device's time for each place in the order, and the links' speed.
#include "allocator/tiers/choice/bandwidth_model.h"

#include <gtest/gtest.h>

namespace spillway::testing {
namespace {

TEST(BandwidthModel, IsKnownFromTheSecondReadingOfTheClock) {
  BandwidthModel pace;
  pace.read_clock(1'000, 100, true);
  EXPECT_EQ(pace.us_per_order(), 0);
  pace.read_clock(3'000, 600, true);
  EXPECT_DOUBLE_EQ(pace.us_per_order(), 4);
}

TEST(BandwidthModel, DoesNotFollowTheDeviceWhileSomethingLiesElsewhere) {
  BandwidthModel pace;
  pace.read_clock(1'000, 100, true);
  pace.read_clock(3'000, 600, true);
  pace.read_clock(90'000, 700, false);
  EXPECT_DOUBLE_EQ(pace.us_per_order(), 4);
}

TEST(BandwidthModel, AClockThatCanNotBeReadOrStandsChangesNothing) {
  BandwidthModel pace;
  pace.read_clock(0, 100, true);
  pace.read_clock(2'000, 200, true);
  EXPECT_EQ(pace.us_per_order(), 0);
  pace.read_clock(2'000, 300, true);
  pace.read_clock(0, 400, true);
  pace.read_clock(3'000, 200, true);
  EXPECT_EQ(pace.us_per_order(), 0);
}

TEST(BandwidthModel, WhatWasMeasuredReplacesTheDefaultOfItsTierAlone) {
  BandwidthModel pace;
  const double host = pace.bytes_per_us(Tier::kHost), file = pace.bytes_per_us(Tier::kNvme);
  EXPECT_GT(pace.bytes_per_us(Tier::kPeer), host);
  EXPECT_GT(host, file);
  pace.measured(Tier::kHost, 50'000, 2);
  pace.measured(Tier::kNvme, 50'000, 0);  // no time: not a measurement
  EXPECT_DOUBLE_EQ(pace.bytes_per_us(Tier::kHost), 25'000);
  EXPECT_EQ(pace.bytes_per_us(Tier::kNvme), file);
}

}  // namespace
}  // namespace spillway::testing
