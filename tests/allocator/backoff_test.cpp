#include "base/backoff.h"

#include <gtest/gtest.h>

namespace spillway::testing {
namespace {
using std::chrono::milliseconds, std::chrono::seconds;

TEST(Backoff, WaitsTwiceAsLongAfterEachRefusalUpToAMinute) {
  Backoff backoff;
  Backoff::Time now{};
  EXPECT_FALSE(backoff.waits(now));
  for (const int wait : {1, 2, 4, 8, 16, 32, 60, 60}) {
    backoff.refused(now);
    backoff.refused(now + milliseconds(1));
    EXPECT_TRUE(backoff.waits(now + seconds(wait) - milliseconds(1))) << wait;
    now += seconds(wait);
    EXPECT_FALSE(backoff.waits(now)) << wait;
  }
}

TEST(Backoff, BeginsAnewAfterASuccess) {
  Backoff backoff;
  Backoff::Time now{};
  for (const int wait : {1, 2}) {
    backoff.refused(now);
    now += seconds(wait);
  }
  backoff.served();
  backoff.refused(now);
  EXPECT_TRUE(backoff.waits(now + milliseconds(999)));
  EXPECT_FALSE(backoff.waits(now + seconds(1)));
}

}  // namespace
}  // namespace spillway::testing
