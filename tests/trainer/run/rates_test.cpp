// What a device's rates are measured with: within what the run may use, and beyond a cache where it can be.
#include "trainer/runtime/rates.h"

#include <gtest/gtest.h>

namespace spillway::trainer {
namespace {

constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

// Bytes of three matrices of the widest numbers, or of two tensors of which one is copied.
uint64_t taken_by(const RateSizes& sizes) {
  return std::max(uint64_t(12 * sizes.side * sizes.side), uint64_t(2 * sizes.copied_bytes));
}

TEST(RateSizes, TakeAtMostAnEighthOfWhatTheWorkspaceLeaves) {
  for (uint64_t bytes = 26 * kMiB; bytes < 200 * kGiB; bytes += bytes / 3) {
    const RateSizes sizes = rate_sizes(bytes + 64 * kMiB, 64 * kMiB);
    EXPECT_GE(sizes.side, 512) << bytes;
    EXPECT_GT(sizes.copied_bytes, 0) << bytes;
    EXPECT_LE(taken_by(sizes), bytes / 8) << bytes;
  }
  for (const uint64_t bytes : {1 * kMiB, 64 * kMiB, 87 * kMiB})
    EXPECT_EQ(rate_sizes(bytes, 64 * kMiB).side, 0) << "no room";
}

TEST(RateSizes, OfALargeCardOrWithoutALimitAreBeyondItsCaches) {
  for (const uint64_t bytes : {uint64_t{0}, 5 * kGiB, 80 * kGiB}) {
    const RateSizes sizes = rate_sizes(bytes, 32 * kMiB);
    EXPECT_EQ(sizes.side, 4096) << bytes;
    EXPECT_EQ(uint64_t(sizes.copied_bytes), 256 * kMiB) << bytes;
  }
}

}  // namespace
}  // namespace spillway::trainer
