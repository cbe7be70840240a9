// The kernel of AdamW and Adam for GPUs: compiled for the cards that there are, and launched on simulated
// ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "tests/trainer/optimizer/kernels.h"
#include "tests/trainer/simulated.h"
#include "trainer/optimizer/adam/adam_kernel.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

class AdamCompiledFor : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Capability, AdamCompiledFor, testing::Values(75, 80, 86, 89, 90, 100, 120),
                         testing::PrintToStringParamName());

TEST_P(AdamCompiledFor, KeepsItsNumbersInRegistersAndRoundsAsAProcessorDoes) {
  const Compiled kernel(adam_kernel(), GetParam());
  EXPECT_THAT(kernel.cubin(), testing::HasSubstr(adam_kernel().name));
  EXPECT_THAT(kernel.log(),
              testing::HasSubstr("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
  EXPECT_GT(kernel.registers(), 0) << kernel.log();
  EXPECT_LE(kernel.registers(), 64) << "32 warps of a multiprocessor run beside each other";
  EXPECT_EQ(kernel.times(kNotAsAProcessor), 0);
  EXPECT_GE(kernel.times("mul\\.rn\\.f32"), 9 * kNumbersOfThread);
  EXPECT_GE(kernel.times("add\\.rn\\.f32"), 3 * kNumbersOfThread);
  EXPECT_GE(kernel.times("sqrt\\.rn\\.f32"), kNumbersOfThread);
  EXPECT_GE(kernel.times("div\\.rn\\.f32"), kNumbersOfThread);
}

constexpr int64_t kElements = 5 * kAdamThreads * kNumbersOfThread + 77;

struct Tensors {
  explicit Tensors(int64_t elements = kElements) {
    at::manual_seed(3);
    value = at::randn({elements}), gradient = at::randn({elements});
    first = at::randn({elements}), second = at::rand({elements});
    weights = at::randn({elements}).to(at::kBFloat16), gradient16 = gradient.to(at::kBFloat16);
  }
  Tensors to(at::Device device) const {
    Tensors other = *this;
    for (at::Tensor* each :
         {&other.value, &other.gradient, &other.first, &other.second, &other.weights, &other.gradient16})
      *each = each->to(device, false, true);
    return other;
  }
  AdamUpdate update(const AdamNumbers& numbers) const {
    return {.numbers = numbers,
            .value = value.mutable_data_ptr<float>(),
            .gradient = gradient.const_data_ptr<float>(),
            .bfloat16 = static_cast<unsigned short*>(weights.mutable_data_ptr()),
            .bfloat16_gradient = nullptr,
            .first = first.mutable_data_ptr<float>(),
            .second = second.mutable_data_ptr<float>(),
            .chance = 0,
            .begin = 0,
            .elements = value.numel()};
  }
  // Of weights in bfloat16, which are rounded by chance.
  AdamUpdate update_by_chance(const AdamNumbers& numbers) const {
    AdamUpdate of = update(numbers);
    of.value = nullptr, of.gradient = nullptr;
    of.bfloat16_gradient = static_cast<const unsigned short*>(gradient16.const_data_ptr());
    of.chance = 0x123456789abcdef0ull, of.begin = 1000;
    return of;
  }
  Tile tile() const {
    return {.parameter = 0,
            .begin = 0,
            .value = value,
            .gradient = gradient,
            .states = {first, second},
            .decays = true,
            .weights = weights};
  }
  void expect_equal(const Tensors& other) const {
    EXPECT_TRUE(at::equal(value.cpu(), other.value.cpu()));
    EXPECT_TRUE(at::equal(first.cpu(), other.first.cpu()));
    EXPECT_TRUE(at::equal(second.cpu(), other.second.cpu()));
    EXPECT_TRUE(at::equal(weights.cpu(), other.weights.cpu()));
  }

  at::Tensor value, gradient, first, second, weights, gradient16;
};

class AdamOnASimulatedCard : public Simulated {
 protected:
  AdamOnASimulatedCard() { simulator().reset(); }

  std::unique_ptr<AdamKernel> kernel() {
    NoKernel why_not;
    auto made = AdamKernel::make(card_, &why_not);
    EXPECT_EQ(why_not.text, "");
    return made;
  }

  const at::Device card_{at::kCUDA, 0};
  const AdamNumbers numbers_{.scale = 0.7f,
                             .keep = 0.999f,
                             .beta1 = 0.9f,
                             .of_first = 0.1f,
                             .beta2 = 0.95f,
                             .of_second = 0.05f,
                             .rate = 1e-2f,
                             .correction = 1.5f,
                             .epsilon = 1e-8f};
};

TEST_F(AdamOnASimulatedCard, HasTheBitsOfAProcessor) {
  const Tensors host, there = host.to(card_);
  kernel()->update(there.update(numbers_));
  update_numbers(host.update(numbers_));
  there.expect_equal(host);
  EXPECT_FALSE(at::equal(host.value, Tensors().value));
  EXPECT_TRUE(at::equal(host.weights, host.value.to(at::kBFloat16)));
  EXPECT_EQ(violations(), "");
}

TEST_F(AdamOnASimulatedCard, RoundsByChanceWithTheBitsOfAProcessor) {
  const Tensors host, there = host.to(card_);
  kernel()->update(there.update_by_chance(numbers_));
  update_numbers(host.update_by_chance(numbers_));
  there.expect_equal(host);
  EXPECT_TRUE(at::equal(host.value, Tensors().value)) << "there are no floats beside the weights";
  EXPECT_FALSE(at::equal(host.weights, Tensors().weights));
  EXPECT_EQ(violations(), "");
}

// Each of its ranges is declared, to its last byte.
TEST_F(AdamOnASimulatedCard, MayNotTouchWhatIsNotThere) {
  const Tensors there = Tensors().to(card_);
  const auto expect_refused = [&](auto change) {
    AdamUpdate of = there.update(numbers_);
    change(of);
    EXPECT_THROW(kernel()->update(of), c10::Error);
  };
  const auto beyond = [](auto*& address) {
    address = reinterpret_cast<std::remove_reference_t<decltype(address)>>(4096);
  };
  expect_refused([&](AdamUpdate& of) { beyond(of.value); });
  expect_refused([&](AdamUpdate& of) { beyond(of.gradient); });
  expect_refused([&](AdamUpdate& of) { beyond(of.first); });
  expect_refused([&](AdamUpdate& of) { beyond(of.second); });
  expect_refused([&](AdamUpdate& of) { beyond(of.bfloat16); });
  expect_refused(
      [&](AdamUpdate& of) { of = there.update_by_chance(numbers_), beyond(of.bfloat16_gradient); });
  simulator().reset();
}

TEST_F(AdamOnASimulatedCard, ThatIsCompiledIsLaunchedOverAllNumbersAndNoMore) {
  NoKernel why_not;
  driver::Table keeping = table();
  keeping.cuLaunchKernel = &keep_launch<AdamUpdate>;
  const auto compiled = AdamKernel::of(DeviceKernel::make_compiled(adam_kernel(), keeping, card_, &why_not));
  ASSERT_TRUE(compiled) << why_not.text;
  const Tensors there = Tensors().to(card_);
  constexpr int64_t kNumbersOfBlock = int64_t{kAdamThreads} * kNumbersOfThread;
  for (const int64_t elements : {int64_t{1}, kNumbersOfBlock, kNumbersOfBlock + 1, kElements}) {
    AdamUpdate update = there.update(numbers_);
    update.elements = elements;
    compiled->update(update);
    const auto& launch = kept_launch<AdamUpdate>;
    EXPECT_EQ(launch.threads, unsigned(kAdamThreads));
    EXPECT_GE(launch.grid * kNumbersOfBlock, elements);
    EXPECT_LT((launch.grid - 1) * kNumbersOfBlock, elements);
    EXPECT_EQ(std::memcmp(&launch.argument, &update, sizeof update), 0);
  }
}

TEST_F(AdamOnASimulatedCard, LeavesAnUpdateWithoutRoomToComputeIn) {
  AdamRule rule({}, true);
  const uint64_t before = simulator().calls("cuMemCreate");
  rule.reserve(card_, int64_t{1} << 30);
  EXPECT_EQ(simulator().calls("cuMemCreate"), before);
  EXPECT_THAT(rule.remarks(), testing::IsEmpty());
}

struct WithDecay : AdamOnASimulatedCard, testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Decoupled, WithDecay, testing::Bool(), testing::PrintToStringParamName());

// More than one tile of the operators' room.
TEST_P(WithDecay, WithoutItsKernelIsNamedAndOperatorsTakeItsPlace) {
  const TrainConfig train{.weight_decay = 0.1};
  AdamRule with(train, GetParam());
  AdamRule without(train, GetParam(), [](at::Device, NoKernel* why_not) {
    why_not->text = "there is no compiler";
    return std::unique_ptr<AdamKernel>();
  });
  const Tensors one = Tensors(kTileElements + 77).to(card_), other = one.to(at::kCPU).to(card_);
  with.reserve(card_, one.value.numel()), without.reserve(card_, one.value.numel());
  EXPECT_THAT(without.remarks(), testing::ElementsAre(testing::EndsWith("there is no compiler")));
  with.begin({.number = 3, .rate = 1e-2}), without.begin({.number = 3, .rate = 1e-2});
  EXPECT_TRUE(with.apply_at_once(one.tile()));
  EXPECT_FALSE(without.apply_at_once(other.tile()));
  without.apply(other.tile());
  EXPECT_TRUE(at::equal(one.first.cpu(), other.first.cpu()));
  EXPECT_TRUE(at::equal(one.second.cpu(), other.second.cpu()));
  EXPECT_TRUE(at::allclose(one.value.cpu(), other.value.cpu(), 1e-6, 1e-7));
}

// Every float that is one of 16 bits, those between two, and those beside these.
TEST(ToBfloat16, RoundsAsLibTorchDoes) {
  for (int64_t high = 0; high < 1 << 16; ++high) {
    for (const uint32_t low : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = float_of(static_cast<int>(static_cast<uint32_t>(high) << 16 | low));
      const c10::BFloat16 expected(value);
      const unsigned short rounded = to_bfloat16(value);
      if (std::isnan(value))
        ASSERT_TRUE(std::isnan(float(c10::BFloat16(rounded, c10::BFloat16::from_bits()))));
      else
        ASSERT_EQ(rounded, expected.x) << value;
    }
  }
}

constexpr AdamNumbers kNumbers{.scale = 0.3f,
                               .decay = 0.01f,
                               .keep = 1,
                               .beta1 = 0.9f,
                               .of_first = 0.1f,
                               .beta2 = 0.999f,
                               .of_second = 0.001f,
                               .rate = 1e-2f};

// Also with numbers that no vector is full of, beginning anywhere.
TEST(AdamOnAProcessor, HasTheSameBitsHoweverTheNumbersAreSplit) {
  for (const auto update : {&Tensors::update, &Tensors::update_by_chance}) {
    const Tensors whole, split;
    update_numbers((whole.*update)(kNumbers));
    for (int64_t begin = 0; begin < kElements;) {
      const int64_t end = std::min<int64_t>(kElements, begin + 1 + begin % 3001);
      update_numbers(part_of((split.*update)(kNumbers), begin, end));
      begin = end;
    }
    split.expect_equal(whole);
  }
}

TEST(AdamOnAProcessor, RoundsWeightsByChanceSuchThatTheirMeanIsRight) {
  Tensors floats(1 << 18);
  floats.value.fill_(1.0017f), floats.gradient.fill_(0), floats.first.fill_(-1e-3f), floats.second.fill_(1);
  Tensors rounded = floats.to(at::kCPU);
  rounded.weights.fill_(1), rounded.gradient16.fill_(0), floats.value.fill_(1);
  update_numbers(floats.update(kNumbers));
  update_numbers(rounded.update_by_chance(kNumbers));
  const double expected = floats.value.to(at::kDouble).mean().item().toDouble() - 1,
               mean = rounded.weights.to(at::kDouble).mean().item().toDouble() - 1;
  EXPECT_GT(std::abs(expected), 1e-7) << "less than a thousandth of what bfloat16 has between two numbers";
  EXPECT_LT(std::abs(expected), 1e-4);
  EXPECT_NEAR(mean, expected, 4 * std::sqrt(std::abs(expected) / 256 / (1 << 18)));
}

}  // namespace
}  // namespace spillway::trainer
