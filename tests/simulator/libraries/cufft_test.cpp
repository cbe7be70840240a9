// cuFFT as a program meets it that names the type of a transform.
#include <cufft.h>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

using Cufft = Runtime;

TEST_F(Cufft, APlanByItsTypeTakesItsAreaAndRuns) {
  cufftHandle plan = 0;
  size_t single = 0, twice = 0;
  int lengths[] = {64, 64};
  long long long_lengths[] = {64, 64};
  cufftComplex matrix{};
  ASSERT_EQ(cufftCreate(&plan), CUFFT_SUCCESS);
  EXPECT_EQ(cufftExecC2C(plan, &matrix, &matrix, CUFFT_FORWARD), CUFFT_INVALID_PLAN) << "it is not made";
  ASSERT_EQ(cufftSetAutoAllocation(plan, 0), CUFFT_SUCCESS);
  ASSERT_EQ(cufftMakePlanMany64(plan, 2, long_lengths, nullptr, 1, 0, nullptr, 1, 0, CUFFT_Z2Z, 4, &twice),
            CUFFT_SUCCESS);
  ASSERT_EQ(cufftMakePlanMany(plan, 2, lengths, nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C, 4, &single),
            CUFFT_SUCCESS);
  EXPECT_EQ(single, size_t{64} * 64 * 4 * 8);
  EXPECT_EQ(twice, 2 * single);
  EXPECT_EQ(cufftExecC2C(plan, &matrix, &matrix, CUFFT_FORWARD), CUFFT_INVALID_VALUE) << "it has no area";
  ASSERT_EQ(cufftSetWorkArea(plan, &matrix), CUFFT_SUCCESS);
  EXPECT_EQ(cufftExecC2C(plan, &matrix, &matrix, CUFFT_FORWARD), CUFFT_SUCCESS);
  EXPECT_EQ(counts().launches, 1u);
  EXPECT_EQ(cufftMakePlanMany(plan, 4, lengths, nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C, 4, &single),
            CUFFT_INVALID_VALUE);
  EXPECT_EQ(cufftDestroy(plan), CUFFT_SUCCESS);
}

}  // namespace
}  // namespace spillway::runtime_test
