// One update of 8-bit moments in each of its ways: in vectors, by the functions of a GPU's kernel, and by
// LibTorch's operators. All have the same bits, where the root does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "trainer/optimizer/quantization/blockwise_adamw.h"
#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What is no number is kept with different bits by different processors.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::isnan(a[i]) && std::isnan(b[i])) && std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return false;
  return a.size() == b.size();
}

struct BlockState {
  explicit BlockState(size_t elements)
      : value(elements),
        first_scales((elements + 255) / 256),
        second_scales(first_scales.size()),
        first(elements, kSignedZero),
        second(elements) {}

  QuantizedMoments moments() {
    return {first.data(), first_scales.data(), second.data(), second_scales.data()};
  }
  BlockwiseUpdate update(const AdamWNumbers& numbers, const std::vector<float>& gradient) {
    return {numbers,      value.data(),  gradient.data(), moments(), static_cast<int64_t>(value.size()),
            signed_map(), unsigned_map()};
  }
  Tile tile(const std::vector<float>& gradient) {
    const auto of = [](auto& numbers, at::ScalarType type) {
      return at::from_blob(numbers.data(), {int64_t(numbers.size())}, type);
    };
    return {.parameter = 0,
            .begin = 0,
            .value = of(value, at::kFloat),
            .gradient = at::tensor(gradient),
            .states = {of(first, at::kByte), of(first_scales, at::kFloat), of(second, at::kByte),
                       of(second_scales, at::kFloat)},
            .decays = true};
  }
  bool same_moments(const BlockState& other) const {
    return first == other.first && second == other.second && same_bits(first_scales, other.first_scales) &&
           same_bits(second_scales, other.second_scales);
  }
  bool operator==(const BlockState& other) const {
    return same_moments(other) && same_bits(value, other.value);
  }

  std::vector<float> value, first_scales, second_scales;
  std::vector<uint8_t> first, second;
};

struct BlockCase {
  const char* name;
  // A gradient, and a scale of a block's moment, from a random number of 0 to 1.
  std::function<float(double)> gradient, scale;
};

double power(double random, double low, double high) {
  return std::pow(10, low + (high - low) * random);
}

std::vector<BlockCase> cases() {
  const auto sized = [](double low, double high) {
    return [=](double x) { return float((x < 0.5 ? -1 : 1) * power(std::fmod(x * 997, 1), low, high)); };
  };
  const auto positive = [](double low, double high) {
    return [=](double x) { return float(power(x, low, high)); };
  };
  const auto some = [=](float what) { return [=](double x) { return x < 0.01 ? what : sized(-4, 0)(x); }; };
  const auto all = [](float what) { return [=](double) { return what; }; };
  return {{"Random", sized(-6, 0), positive(-6, 0)},
          {"Zero", all(0), all(0)},
          {"ZeroGradient", all(0), positive(-6, 0)},
          {"Subnormal", sized(-44, -39), positive(-44, -39)},
          {"Tiny", sized(-30, -20), positive(-38, -20)},
          {"Huge", sized(10, 38), positive(10, 38)},
          {"OneInfinite", some(kInfinity), positive(-3, 0)},
          {"OneNegativeInfinite", some(-kInfinity), positive(-3, 0)},
          {"OneIsNone", some(NAN), positive(-3, 0)},
          {"ScaleInfinite", sized(-6, 0), all(kInfinity)},
          {"ScaleIsNone", sized(-6, 0), all(NAN)}};
}

class BlockwiseUpdates : public testing::TestWithParam<BlockCase> {
 protected:
  double random() { return double(engine_()) / 4294967296.0; }

  BlockState any_state(size_t elements) {
    BlockState state(elements);
    for (float& value : state.value) value = float(random() - 0.5);
    for (uint8_t& code : state.first) code = static_cast<uint8_t>(engine_());
    for (uint8_t& code : state.second) code = static_cast<uint8_t>(engine_());
    for (float& scale : state.first_scales) scale = GetParam().scale(random());
    for (float& scale : state.second_scales) scale = GetParam().scale(random());
    return state;
  }
  std::vector<float> any_gradient(size_t elements) {
    std::vector<float> gradient(elements);
    for (float& g : gradient) g = GetParam().gradient(random());
    return gradient;
  }
  // The same three updates, from the same states, of sizes around a block's.
  void expect_the_same(const std::function<void(BlockState&, const std::vector<float>&)>& one,
                       const std::function<void(BlockState&, const std::vector<float>&)>& other) {
    for (const size_t elements : {1, 2, 31, 32, 33, 255, 256, 257, 511, 512, 513, 1000, 4096, 5003}) {
      BlockState a = any_state(elements), b = a;
      const BlockState begin = a;
      for (int i = 0; i < 3; ++i) {
        const std::vector<float> gradient = any_gradient(elements);
        one(a, gradient), other(b, gradient);
        ASSERT_TRUE(a == b) << elements << " numbers, update " << i;
      }
      EXPECT_FALSE(same_bits(a.value, begin.value)) << "it was updated";
    }
  }

  std::mt19937 engine_{5};
  const AdamWNumbers numbers_{
      .keep = 0.999f, .beta1 = 0.9f, .beta2 = 0.95f, .rate = 1e-2f, .correction = 1.3f, .epsilon = 1e-8f};
};
void PrintTo(const BlockCase& of, std::ostream* out) {
  *out << of.name;
}
INSTANTIATE_TEST_SUITE_P(Of, BlockwiseUpdates, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BlockwiseUpdates, HaveTheSameBitsOnAProcessorAndByTheLanesOfAGpu) {
  for (const VectorWidth width : {VectorWidth::kEight, VectorWidth::kSixteen}) {
    if (!can_compute(width)) continue;
    expect_the_same(
        [&](BlockState& state, const std::vector<float>& gradient) {
          update_blocks(numbers_, state.value.data(), gradient.data(), state.moments(),
                        int64_t(state.value.size()), width);
        },
        [&](BlockState& state, const std::vector<float>& gradient) {
          update_blocks_by_lanes(state.update(numbers_, gradient), 0, int64_t(state.first_scales.size()));
        });
  }
}

// A processor's roots in LibTorch are MKL's, which are not always the nearest number: the values that are
// moved by them are as near as these, and the moments have the same bits.
TEST_P(BlockwiseUpdates, HaveTheSameMomentsByLibTorchsOperators) {
  QuantizedAdamWRule rule({.weight_decay = 0.1});
  rule.begin({.number = 3, .rate = 1e-2});
  for (const size_t elements : {1, 2, 33, 255, 256, 257, 1000, 5003}) {
    BlockState one = any_state(elements), other = one;
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> gradient = any_gradient(elements);
      rule.apply(one.tile(gradient));
      rule.reserve_operators(at::kCPU, int64_t(elements));
      rule.apply_by_operators(other.tile(gradient));
      ASSERT_TRUE(one.same_moments(other)) << elements << " numbers, update " << i;
      ASSERT_TRUE(at::allclose(one.tile(gradient).value, other.tile(gradient).value, 1e-6, 1e-7, true));
    }
  }
}

// bitsandbytes' own way to its maps, in double precision.
std::vector<float> map_of_bitsandbytes(bool with_signs) {
  std::vector<float> codes{0.0f, 1.0f};
  for (int i = 0; i <= 6; ++i) {
    const int bins = 1 << (with_signs ? i : i + 1);
    for (int bin = 0; bin < bins; ++bin) {
      const auto number = float((0.1 + 0.9 * (bin + 0.5) / bins) * std::pow(10.0, i - 6));
      codes.push_back(number);
      if (with_signs) codes.push_back(-number);
    }
  }
  std::sort(codes.begin(), codes.end());
  return codes;
}

TEST(DynamicMap, HasTheNumbersOfBitsandbytes) {
  const std::vector<float> with_signs = map_of_bitsandbytes(true), without = map_of_bitsandbytes(false);
  ASSERT_EQ(with_signs.size(), signed_codes().size());
  for (size_t i = 0; i < with_signs.size(); ++i) {
    EXPECT_NEAR(signed_codes()[i], with_signs[i], 1e-6f * std::fabs(with_signs[i])) << i;
    EXPECT_NEAR(unsigned_codes()[i], without[i], 1e-6f * without[i]) << i;
  }
  EXPECT_EQ(signed_codes()[kSignedZero], 0);
  EXPECT_FLOAT_EQ(signed_codes()[0], -0.99296875f);
}

TEST(DynamicMap, ACodeBeginsAtItsThresholdAndHalfWayToTheNext) {
  for (int code = 0; code < 255; ++code) {
    const auto i = static_cast<size_t>(code);
    const float least = unsigned_thresholds()[i];
    EXPECT_EQ(encoded(unsigned_map(), least), code + 1);
    EXPECT_EQ(encoded(unsigned_map(), std::nextafter(least, 0.0f)), code);
    EXPECT_NEAR(least, (unsigned_codes()[i] + unsigned_codes()[i + 1]) / 2, 2e-6 * least);
    const float limit = signed_thresholds()[i];
    EXPECT_EQ(warp::encoded_first(signed_map(), limit, 1), code + 1);
    EXPECT_EQ(warp::encoded_first(signed_map(), std::nextafter(limit, -1.0f), 1), code);
    EXPECT_NEAR(limit, (signed_codes()[i] + signed_codes()[i + 1]) / 2, 2e-6 * std::fabs(limit));
  }
}

}  // namespace
}  // namespace spillway::trainer
