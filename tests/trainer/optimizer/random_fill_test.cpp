// Random bits for roundings by operators: the kernel for GPUs, compiled, and the same bits on a simulated
// card, on a processor, and where a card has no kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/optimizer/kernels.h"
#include "tests/trainer/simulated.h"
#include "trainer/optimizer/rounding/stochastic_rounding.h"

namespace spillway::trainer {
namespace {

class FillCompiledFor : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Capability, FillCompiledFor, testing::Values(75, 80, 86, 89, 90, 100, 120),
                         testing::PrintToStringParamName());

TEST_P(FillCompiledFor, IsThereAndRoundsAsAProcessorDoes) {
  const Compiled kernel(random_fill_kernel(), GetParam());
  EXPECT_THAT(kernel.cubin(), testing::HasSubstr(random_fill_kernel().name));
  EXPECT_THAT(kernel.log(), testing::HasSubstr("0 bytes spill stores, 0 bytes spill loads"));
  EXPECT_EQ(kernel.times(kNotAsAProcessor), 0);
}

class RandomFillOnASimulatedCard : public Simulated {
 protected:
  RandomFillOnASimulatedCard() { simulator().reset(); }
  const at::Device card_{at::kCUDA, 0};
};

// Of a tile and of its second half, more than a thread block has.
TEST_F(RandomFillOnASimulatedCard, HasTheBitsOfAProcessorWhereverATileBegins) {
  constexpr int64_t kCount = 4 * 256 + 77, kHalf = 500;
  at::manual_seed(5);
  const at::Tensor numbers = at::randn({kCount});
  const auto rounded = [&](at::Device device, int64_t begin) {
    StochasticRounding rounding(7);
    rounding.reserve(device);
    EXPECT_THAT(rounding.remarks(), testing::IsEmpty());
    const at::Tensor from = numbers.narrow(0, begin, kCount - begin).to(device, false, true);
    const at::Tensor bits = at::empty(from.sizes(), from.options().dtype(at::kInt)),
                     to = at::empty(from.sizes(), from.options().dtype(at::kBFloat16)),
                     chances = at::empty_like(from);
    rounding.round(from, bits, to, {3, 4, uint64_t(begin)});
    rounding.draw(chances, {3, 4, uint64_t(begin)});
    return std::pair(to.cpu(), chances.cpu());
  };
  const auto host = rounded(at::kCPU, 0), card = rounded(card_, 0), half = rounded(card_, kHalf);
  EXPECT_TRUE(at::equal(card.first, host.first));
  EXPECT_TRUE(at::equal(card.second, host.second));
  EXPECT_TRUE(at::equal(half.first, host.first.narrow(0, kHalf, kCount - kHalf)));
  EXPECT_TRUE(at::equal(half.second, host.second.narrow(0, kHalf, kCount - kHalf)));
  EXPECT_NEAR(host.second.mean().item().toDouble(), 0.5, 0.05);
  EXPECT_GE(host.second.min().item().toDouble(), 0);
  EXPECT_LT(host.second.max().item().toDouble(), 1);
  EXPECT_EQ(violations(), "");
}

}  // namespace
}  // namespace spillway::trainer
