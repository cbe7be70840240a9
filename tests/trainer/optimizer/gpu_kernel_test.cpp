// The kernel of 8-bit AdamW for GPUs: compiled for the cards that there are, and launched on simulated ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "tests/trainer/optimizer/kernels.h"
#include "tests/trainer/simulated.h"
#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/quantization/gpu_kernel.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

class CompiledFor : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Capability, CompiledFor, testing::Values(75, 80, 86, 89, 90, 100, 120),
                         testing::PrintToStringParamName());

TEST_P(CompiledFor, KeepsItsNumbersInRegisters) {
  const Compiled kernel(blockwise_kernel(), GetParam());
  EXPECT_THAT(kernel.cubin(), testing::StartsWith("\x7f"
                                                  "ELF"));
  EXPECT_THAT(kernel.cubin(), testing::HasSubstr(blockwise_kernel().name));
  EXPECT_THAT(kernel.log(),
              testing::HasSubstr("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
  EXPECT_GT(kernel.registers(), 0) << kernel.log();
  EXPECT_LE(kernel.registers(), 80) << "24 warps of a multiprocessor run beside each other";
}

// Then its bits are those of a processor: no sum is rounded with its product, no quotient or root is
// approximate, and no subnormal number is zero.
TEST_P(CompiledFor, RoundsAsAProcessorDoes) {
  const Compiled kernel(blockwise_kernel(), GetParam());
  EXPECT_EQ(kernel.times(kNotAsAProcessor), 0);
  EXPECT_GT(kernel.times("mul\\.rn\\.f32"), 10 * kNumbersOfLane);
  EXPECT_GT(kernel.times("add\\.rn\\.f32"), 8 * kNumbersOfLane);
  EXPECT_EQ(kernel.times("sqrt\\.rn\\.f32"), kNumbersOfLane);
  EXPECT_GE(kernel.times("(div|rcp)\\.rn\\.f32"), kNumbersOfLane + 2);
}

TEST(DeviceCode, SaysWhereASourceIsWrong) {
  std::string error;
  EXPECT_FALSE(compiler().compile({{{"wrong.h", "__global__ void f() { undeclared = 1; }"}}}, 90, &error));
  EXPECT_THAT(error, testing::HasSubstr("undeclared"));
  constexpr const char* kTwoErrors = R"(#warning old
__global__ void f() { first = 1; }
__global__ void g() { second = 1; })";
  EXPECT_FALSE(compiler().compile({{{"wrong.h", kTwoErrors}}}, 90, &error));
  EXPECT_THAT(error, testing::HasSubstr("\"first\"")) << "the first error, and no warning before it";
  EXPECT_THAT(error, testing::Not(testing::AnyOf(testing::HasSubstr("second"), testing::HasSubstr("\n"))));
  EXPECT_FALSE(compiler().compile(blockwise_kernel().source, 10, &error));
  EXPECT_THAT(error, testing::HasSubstr("compute capability 10"));
}

TEST(DeviceCode, IsTextWithoutTheEndOfAText) {
  std::string error;
  const auto binary = compiler().compile({{{"right.h", "__global__ void f() {}"}}}, 90, &error);
  ASSERT_TRUE(binary) << error;
  EXPECT_EQ(binary->ptx.find('\0'), std::string::npos);
  EXPECT_EQ(binary->log.find('\0'), std::string::npos);
}

TEST(DeviceCode, SaysThatThereIsNoCompiler) {
  std::string error;
  EXPECT_FALSE(RuntimeCompiler::load(&error, {"libnvrtc-of-nobody.so.2", "libnvrtc-of-nobody.so.1"}));
  EXPECT_THAT(error, testing::HasSubstr("libnvrtc-of-nobody.so.2")) << "the one that PyTorch brings";
}

std::unique_ptr<BlockwiseKernel> compiled_kernel(const driver::Table& table, at::Device device,
                                                 NoKernel* why_not) {
  return BlockwiseKernel::of(DeviceKernel::make_compiled(blockwise_kernel(), table, device, why_not));
}

class KernelOnASimulatedCard : public Simulated {
 protected:
  static constexpr int64_t kElements = 40 * kQuantizationBlock + 77, kBlocks = 41;

  struct Tensors {
    at::Tensor value, gradient, first, first_scales, second, second_scales;
    Tensors to(at::Device device) const {
      return {value.to(device),        gradient.to(device), first.to(device),
              first_scales.to(device), second.to(device),   second_scales.to(device)};
    }
    BlockwiseUpdate update(const AdamWNumbers& numbers) const {
      return {numbers,
              value.mutable_data_ptr<float>(),
              gradient.const_data_ptr<float>(),
              {first.mutable_data_ptr<uint8_t>(), first_scales.mutable_data_ptr<float>(),
               second.mutable_data_ptr<uint8_t>(), second_scales.mutable_data_ptr<float>()},
              value.numel(),
              signed_map(),
              unsigned_map()};
    }
  };
  KernelOnASimulatedCard() { simulator().reset(); }

  static Tensors tensors() {
    at::manual_seed(3);
    return {at::randn({kElements}),
            at::randn({kElements}),
            at::randint(256, {kElements}, at::kByte),
            at::rand({kBlocks}),
            at::randint(256, {kElements}, at::kByte),
            at::rand({kBlocks})};
  }
  std::unique_ptr<BlockwiseKernel> kernel() {
    NoKernel why_not;
    auto made = BlockwiseKernel::make(card_, &why_not);
    EXPECT_EQ(why_not.text, "");
    return made;
  }

  const at::Device card_{at::kCUDA, 0};
  const AdamWNumbers numbers_{.keep = 0.999f, .beta1 = 0.9f, .beta2 = 0.95f, .rate = 1e-2f, .epsilon = 1e-8f};
};

TEST_F(KernelOnASimulatedCard, HasTheBitsOfAProcessor) {
  const Tensors host = tensors(), there = host.to(card_);
  kernel()->update(there.update(numbers_));
  const BlockwiseUpdate of = host.update(numbers_);
  update_blocks(of.numbers, of.value, of.gradient, of.moments, of.elements);
  const Tensors back = there.to(at::kCPU);
  EXPECT_TRUE(at::equal(back.value, host.value));
  EXPECT_TRUE(at::equal(back.first, host.first) && at::equal(back.second, host.second));
  EXPECT_TRUE(at::equal(back.first_scales, host.first_scales) &&
              at::equal(back.second_scales, host.second_scales));
  EXPECT_EQ(violations(), "");
}

// Each of its ranges is declared, to its last byte.
TEST_F(KernelOnASimulatedCard, MayNotTouchWhatIsNotThere) {
  const Tensors there = tensors().to(card_);
  const auto expect_refused = [&](auto change) {
    BlockwiseUpdate of = there.update(numbers_);
    change(of);
    EXPECT_THROW(kernel()->update(of), c10::Error);
  };
  const auto beyond = [](auto*& address) {
    address = reinterpret_cast<std::remove_reference_t<decltype(address)>>(4096);
  };
  expect_refused([&](BlockwiseUpdate& of) { beyond(of.value); });
  expect_refused([&](BlockwiseUpdate& of) { beyond(of.gradient); });
  expect_refused([&](BlockwiseUpdate& of) { beyond(of.moments.first_codes); });
  expect_refused([&](BlockwiseUpdate& of) { beyond(of.moments.first_scales); });
  expect_refused([&](BlockwiseUpdate& of) { beyond(of.moments.second_codes); });
  expect_refused([&](BlockwiseUpdate& of) { beyond(of.moments.second_scales); });
  simulator().reset();
}

TEST_F(KernelOnASimulatedCard, LeavesAnUpdateWithoutRoomToComputeIn) {
  QuantizedAdamWRule rule({});
  const uint64_t before = simulator().calls("cuMemCreate");
  rule.reserve(card_, int64_t{1} << 30);
  EXPECT_EQ(simulator().calls("cuMemCreate"), before);
  EXPECT_THAT(rule.remarks(), testing::IsEmpty());
}

TEST_F(KernelOnASimulatedCard, ThatIsCompiledIsLaunchedOverAllBlocksAndNoMore) {
  NoKernel why_not;
  driver::Table keeping = table();
  keeping.cuLaunchKernel = &keep_launch<BlockwiseUpdate>;
  const auto compiled = compiled_kernel(keeping, card_, &why_not);
  ASSERT_TRUE(compiled) << why_not.text;
  const Tensors there = tensors().to(card_);
  for (const int64_t elements : {int64_t{1}, kQuantizationBlock, 4 * kQuantizationBlock, kElements}) {
    BlockwiseUpdate update = there.update(numbers_);
    update.elements = elements;
    compiled->update(update);
    const int64_t blocks = (elements + kQuantizationBlock - 1) / kQuantizationBlock;
    const auto& launch = kept_launch<BlockwiseUpdate>;
    EXPECT_EQ(launch.threads, 128u);
    EXPECT_GE(launch.grid * 4, blocks);
    EXPECT_LT((launch.grid - 1) * 4, blocks);
    EXPECT_EQ(launch.shared, 0u);
    EXPECT_EQ(std::memcmp(&launch.argument, &update, sizeof update), 0);
  }
}

// What a real card runs: compiled, loaded and launched. The simulated card has no code of kernels, and says
// so.
TEST_F(KernelOnASimulatedCard, ThatIsCompiledIsLaunchedAndNamedAsNotComputed) {
  NoKernel why_not;
  const auto compiled = compiled_kernel(table(), card_, &why_not);
  ASSERT_TRUE(compiled) << why_not.text;
  const Tensors there = tensors().to(card_);
  const uint64_t launched = simulator().calls("cuLaunchKernel");
  testing::internal::CaptureStderr();
  compiled->update(there.update(numbers_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("spillway_update_blocks: no CPU kernel stood in for it"));
  EXPECT_EQ(simulator().calls("cuLaunchKernel"), launched + 1);
}

// More than one tile of the operators' room, and a part of a block.
TEST_F(KernelOnASimulatedCard, ThatIsNotThereIsNamedAndOperatorsTakeItsPlace) {
  constexpr int64_t kMany = kTileElements + kQuantizationBlock + 77,
                    kManyBlocks = (kMany + kQuantizationBlock - 1) / kQuantizationBlock;
  QuantizedAdamWRule without({}, [](at::Device, NoKernel* why_not) {
    why_not->text = "there is no compiler";
    return std::unique_ptr<BlockwiseKernel>();
  });
  QuantizedAdamWRule with({});
  without.reserve(card_, kMany), with.reserve(card_, kMany);
  EXPECT_THAT(without.remarks(), testing::ElementsAre(testing::EndsWith("there is no compiler")));
  const auto updated = [&](QuantizedAdamWRule& rule) {
    at::manual_seed(4);
    const Tile tile{
        .parameter = 0,
        .begin = 0,
        .value = at::randn({kMany}).to(card_),
        .gradient = at::randn({kMany}).to(card_),
        .states = {at::full({kMany}, kSignedZero, at::kByte).to(card_), at::zeros({kManyBlocks}).to(card_),
                   at::zeros({kMany}, at::kByte).to(card_), at::zeros({kManyBlocks}).to(card_)},
        .decays = true};
    rule.begin({.number = 1, .rate = 1e-2});
    rule.apply(tile);
    return tile;
  };
  const Tile one = updated(without), other = updated(with);
  for (size_t i = 0; i < one.states.size(); ++i)
    EXPECT_TRUE(at::equal(one.states[i].cpu(), other.states[i].cpu())) << i;
  EXPECT_TRUE(at::allclose(one.value.cpu(), other.value.cpu(), 1e-6, 1e-7));
}

TEST_F(KernelOnASimulatedCard, ThatTheDriverDoesNotLoadIsNamed) {
  NoKernel why_not;
  EXPECT_FALSE(load_kernel(table(), {.cubin = std::string(4096, 'x'), .ptx = "", .log = ""},
                           blockwise_kernel().name, &why_not));
  EXPECT_THAT(why_not.text, testing::HasSubstr(blockwise_kernel().name));
  EXPECT_FALSE(why_not.may_come_later);
}

TEST_F(KernelOnASimulatedCard, MayComeLaterWhereThereWasNoMemoryForIt) {
  NoKernel why_not;
  driver::Table full = table();
  full.cuModuleLoadData = [](CUmodule*, const void*) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_FALSE(compiled_kernel(full, card_, &why_not));
  EXPECT_TRUE(why_not.may_come_later) << why_not.text;
}

TEST_F(KernelOnASimulatedCard, IsLoadedWhereNothingMadeAContextCurrent) {
  CUcontext before = nullptr, after = nullptr;
  ASSERT_EQ(table().cuCtxGetCurrent(&before), CUDA_SUCCESS);
  ASSERT_EQ(table().cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  NoKernel why_not;
  EXPECT_TRUE(compiled_kernel(table(), card_, &why_not)) << why_not.text;
  EXPECT_EQ(table().cuCtxGetCurrent(&after), CUDA_SUCCESS);
  EXPECT_NE(after, nullptr);
  ASSERT_EQ(table().cuCtxSetCurrent(before), CUDA_SUCCESS);
}

TEST_F(KernelOnASimulatedCard, IsNotThereWhereTheDriverDoesNotNameTheCardsKind) {
  driver::Table silent = table();
  silent.cuDeviceGetAttribute = [](int*, CUdevice_attribute, CUdevice) { return CUDA_ERROR_UNKNOWN; };
  NoKernel why_not;
  EXPECT_FALSE(compiled_kernel(silent, card_, &why_not));
  EXPECT_THAT(why_not.text, testing::HasSubstr("compute capability"));
}

// A rule with kernels as these answers say; "": there is one.
class RuleWithAnswers {
 public:
  explicit RuleWithAnswers(std::vector<NoKernel> answers) : answers_(std::move(answers)) {}

  size_t asked() const { return asked_; }
  void reserve(at::Device device) { rule_.reserve(device, kQuantizationBlock); }
  std::vector<std::string> remarks() const { return rule_.remarks(); }

 private:
  struct Idle : BlockwiseKernel {
    void update(const BlockwiseUpdate&) const override {}
  };
  std::unique_ptr<BlockwiseKernel> answer(NoKernel* why_not) {
    *why_not = answers_.at(asked_++);
    return why_not->text.empty() ? std::make_unique<Idle>() : nullptr;
  }

  const std::vector<NoKernel> answers_;
  size_t asked_ = 0;
  QuantizedAdamWRule rule_{{}, [this](at::Device, NoKernel* why_not) { return answer(why_not); }};
};

TEST_F(KernelOnASimulatedCard, IsAskedForAgainOnlyWhereItMayComeLater) {
  RuleWithAnswers rule({{.text = "out of memory", .may_come_later = true},
                        {.text = "out of memory", .may_come_later = true},
                        {.text = ""}});
  for (int i = 0; i < 5; ++i) rule.reserve(card_);
  EXPECT_EQ(rule.asked(), 3u);
  EXPECT_THAT(rule.remarks(), testing::ElementsAre(testing::EndsWith("out of memory")));
  RuleWithAnswers without({{.text = "there is no compiler"}});
  for (int i = 0; i < 5; ++i) without.reserve(card_);
  EXPECT_EQ(without.asked(), 1u);
}

TEST_F(KernelOnASimulatedCard, ThatIsNotThereIsNamedOfEachCard) {
  RuleWithAnswers rule({{.text = "one"}, {.text = "other"}});
  rule.reserve(card_);
  rule.reserve(at::Device(at::kCUDA, 1));
  EXPECT_THAT(rule.remarks(),
              testing::ElementsAre(testing::AllOf(testing::HasSubstr("cuda:0"), testing::EndsWith("one")),
                                   testing::AllOf(testing::HasSubstr("cuda:1"), testing::EndsWith("other"))));
}

}  // namespace
}  // namespace spillway::trainer
