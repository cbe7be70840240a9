// What is kept in fewer bits: the maps of 8-bit codes, the update that works on them, and rounding by chance.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "trainer/model/weights.h"
#include "trainer/optimizer/quantization/blockwise_adamw.h"
#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/rounding/int8_rounding.h"
#include "trainer/optimizer/rounding/stochastic_rounding.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

class QuantizedUpdate : public testing::Test {
 protected:
  // A whole number of blocks and a part of one.
  static constexpr int64_t kElements = 40 * kQuantizationBlock + 77, kBlocks = 41;
  struct State {
    at::Tensor value = at::randn({kElements});
    at::Tensor first = at::full({kElements}, kSignedZero, at::kByte), first_scales = at::zeros({kBlocks});
    at::Tensor second = at::zeros({kElements}, at::kByte), second_scales = at::zeros({kBlocks});
    Tile tile(const at::Tensor& gradient) const {
      return {.parameter = 0,
              .begin = 0,
              .value = value,
              .gradient = gradient.clone(),
              .states = {first, first_scales, second, second_scales},
              .decays = true};
    }
  };
  QuantizedUpdate() { at::manual_seed(3); }
  at::Tensor gradient() const {  // of very different sizes within a block, and a block of zeros
    at::Tensor made = at::randn({kElements}) * at::pow(10.0, -6 * at::rand({kElements}));
    made.narrow(0, kQuantizationBlock, kQuantizationBlock).zero_();
    return made;
  }

  QuantizedAdamWRule rule_{{.weight_decay = 0.1}};
};

TEST_F(QuantizedUpdate, KeepsEachMomentAtTheNearestCode) {
  State state;
  at::Tensor first = at::zeros({kElements}), second = at::zeros({kElements});
  const at::Tensor now = gradient();
  rule_.begin({.number = 1, .rate = 1e-2});
  rule_.apply(state.tile(now));
  const auto expect_nearest = [&](const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& moment,
                                  const CodeTable& map) {
    for (int64_t i = 0; i < kElements; ++i) {
      const float x = moment[i].item().toFloat() / scales[i / kQuantizationBlock].item().toFloat();
      const float kept = std::fabs(map[codes[i].item().toByte()] - x);
      for (const float other : map)
        ASSERT_LE(kept, std::fabs(other - x) + 2e-7f * std::fabs(x)) << i << ": " << x;
    }
  };
  expect_nearest(state.first, state.first_scales, now * (1 - float(0.9)), signed_codes());
  expect_nearest(state.second, state.second_scales, now * now * (1 - float(0.95)), unsigned_codes());
}

class Int8Matrix : public testing::Test {
 protected:
  static constexpr int64_t kRows = 24, kColumns = 37;
  Int8Matrix() {
    at::manual_seed(4);
    matrix_ = at::randn({kRows, kColumns}) * at::pow(10.0, -4 * at::rand({kRows, 1}));
    matrix_.select(0, 3).zero_();
    rounding_.reserve(at::kCPU, kRows);
  }
  void round(const at::Tensor& numbers, const Int8Weight& into) {
    const at::Tensor flat = numbers.flatten().clone();
    rounding_.round(flat, at::empty_like(flat), at::rand({kRows * kColumns}), into);
  }
  at::Tensor matrix_;
  Int8Rounding rounding_;
};

TEST_F(Int8Matrix, IsNoFurtherThanHalfACode) {
  const Int8Weight weight = in_8_bits(matrix_);
  const at::Tensor steps = matrix_.abs().amax({1}, true) / 127;
  EXPECT_TRUE(((numbers_of(weight, at::kFloat) - matrix_).abs() <= steps * 0.76).all().item().toBool());
  EXPECT_GE(weight.codes.abs().max().item().toInt(), 126);
}

TEST_F(Int8Matrix, IsReadAsItsNumbers) {
  const Int8Weight weight = in_8_bits(matrix_);
  const at::Tensor floats = at::empty({kRows * kColumns});
  rounding_.read(weight, floats);
  EXPECT_TRUE(at::equal(floats.view({kRows, kColumns}), numbers_of(weight, at::kFloat)));
}

TEST_F(Int8Matrix, ThatNoUpdateChangedKeepsItsBits) {
  Int8Weight weight = in_8_bits(matrix_);
  round(numbers_of(weight, at::kFloat), weight);  // scales are now those of an update
  const Int8Weight before{weight.codes.clone(), weight.scales.clone()};
  for (int i = 0; i < 5; ++i) round(numbers_of(weight, at::kFloat), weight);
  const at::Tensor full =
      (before.codes.abs().amax({1}) == 127);  // a row whose largest code is less gets a finer scale
  EXPECT_GT(full.sum().item().toInt(), kRows / 2);
  EXPECT_TRUE(at::equal(weight.codes.index({full}), before.codes.index({full})));
  EXPECT_TRUE(at::equal(weight.scales.index({full}), before.scales.index({full})));
}

TEST_F(Int8Matrix, IsRoundedWithTheRightMeanAndNeverOutOfItsRange) {
  constexpr int kDraws = 4000;
  at::Tensor sum = at::zeros_like(matrix_);
  Int8Weight weight = in_8_bits(matrix_);
  for (int i = 0; i < kDraws; ++i) round(matrix_, weight), sum += numbers_of(weight, at::kFloat);
  const at::Tensor steps = weight.scales.to(at::kFloat).unsqueeze(1);
  const at::Tensor off = ((sum / kDraws - matrix_) / steps).abs();
  EXPECT_LT(off.max().item().toDouble(), 5 * 0.5 / std::sqrt(kDraws));
  EXPECT_TRUE((matrix_.abs() <= 127 * steps).all().item().toBool()) << "scales are rounded up";
}

// With the bits that a GPU gives it, to which a carry would make a number of it.
at::Tensor gpus_nan() {
  return at::full({1}, 0x7fffffff, at::kInt).view(at::kFloat);
}

TEST_F(Int8Matrix, ThatIsNoNumberStaysNone) {
  Int8Weight weight = in_8_bits(matrix_);
  matrix_.select(0, 5).narrow(0, 7, 1).copy_(gpus_nan());
  round(matrix_, weight);
  const at::Tensor found = numbers_of(weight, at::kFloat).isnan().all(1);
  EXPECT_TRUE(found[5].item().toBool());
  EXPECT_EQ(found.sum().item().toInt(), 1);
}

TEST_F(Int8Matrix, IsNeverRoundedAwayFromACode) {
  Int8Weight weight{at::zeros({1, 3}, at::kChar), at::ones({1}, at::kBFloat16)};
  const at::Tensor codes = at::full({3}, 0.0).copy_(at::arange(100, 103));
  codes[2] = 127;  // the scale is 1
  const at::Tensor expected = codes.clone(), most = at::full({3}, std::nextafter(1.0f, 0.0f));
  rounding_.round(codes, at::empty({3}), most, weight);
  EXPECT_TRUE(at::equal(weight.codes.flatten().to(at::kFloat), expected)) << weight.codes;
}

TEST_F(Int8Matrix, MultipliesAndHasGradientsAsItsNumbersInFloats) {
  for (const MatrixLayout layout : {MatrixLayout::kOutIn, MatrixLayout::kInOut}) {
    const Int8Weight weight = in_8_bits(matrix_);
    const bool out_in = layout == MatrixLayout::kOutIn;
    const at::Tensor x = at::randn({2, 5, out_in ? kColumns : kRows}).requires_grad_(true);
    const at::Tensor leaf = stand_in(matrix_.sizes(), at::kCPU), same = x.detach().requires_grad_(true);
    const at::Tensor floats = numbers_of(weight, at::kFloat).requires_grad_(true);
    const at::Tensor product = int8_product(x, leaf, weight, layout);
    const at::Tensor expected = at::matmul(same, out_in ? floats.t() : floats);
    const at::Tensor direction = at::randn_like(expected);
    torch::autograd::backward({product}, {direction});
    torch::autograd::backward({expected}, {direction});
    EXPECT_TRUE(at::allclose(product, expected, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(leaf.grad().to(at::kFloat), floats.grad(), 1e-2, 1e-2));
    EXPECT_EQ(leaf.storage().nbytes(), 2u) << "what stands for a matrix takes no memory";
  }
}

TEST(StochasticRounding, HasTheRightMeanAndKeepsWhatNeedsNoRounding) {
  StochasticRounding rounding(7);
  rounding.reserve(at::kCPU);
  constexpr int64_t kCount = 1 << 20;
  const auto rounded = [&](double number, uint64_t update) {
    const at::Tensor out = at::empty({kCount}, at::kBFloat16);
    rounding.round(at::full({kCount}, number, at::kFloat), at::empty({kCount}, at::kInt), out,
                   {update, 0, 0});
    return out.to(at::kDouble);
  };
  for (const double number : {1.0017, -0.33337, 3.1e-5}) {
    const at::Tensor many = rounded(number, 1);
    EXPECT_NEAR(many.mean().item().toDouble() / number, 1, 3e-5);
    EXPECT_LT((many - number).abs().max().item().toDouble(), std::fabs(number) / 128);
  }
  EXPECT_TRUE(at::equal(rounded(1.5, 1), at::full({kCount}, 1.5, at::kDouble)));
  EXPECT_TRUE(at::equal(rounded(1.0017, 4), rounded(1.0017, 4))) << "the same place, the same bits";
  EXPECT_FALSE(at::equal(rounded(1.0017, 4), rounded(1.0017, 5)));
}

TEST(StochasticRounding, LeavesWhatIsNoNumber) {
  StochasticRounding rounding(7);
  rounding.reserve(at::kCPU);
  const at::Tensor out = at::empty({64}, at::kBFloat16);
  rounding.round(gpus_nan().expand({64}).clone(), at::empty({64}, at::kInt), out, {1, 2, 3});
  EXPECT_TRUE(out.isnan().all().item().toBool());
}

TEST(StochasticRounding, LeavesTheModelsRandomNumbersAlone) {
  at::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  StochasticRounding rounding(7);
  rounding.reserve(at::kCPU);
  rounding.round(at::ones({9}), at::empty({9}, at::kInt), at::empty({9}, at::kBFloat16), {1, 2, 3});
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

}  // namespace
}  // namespace spillway::trainer
