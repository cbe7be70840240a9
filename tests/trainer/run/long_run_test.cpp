// Twenty steps of each family, and of a T5 also on padded pairs, with everything on that could tell two runs
// apart: dropout, clipped gradients, micro-batches, float16 with a loss scale that overflows. Whatever is
// recomputed, moved, failed or resumed on the way, the losses, norms and weights are those of the plain run,
// to the bit.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "tests/trainer/data/pair_files.h"
#include "tests/trainer/simulated.h"
#include "trainer/checkpoint/checkpoint.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kLong = 20, kMiddle = 9;  // steps; where something happens
constexpr uint64_t kPlaces = 4;              // where requests fail

struct Learned {
  Family family;
  bool pairs = false;
  Numerics numerics{Precision::kFp16Mixed, OptimizerKind::kAdamW};
};

constexpr size_t kOfEachCommit = 4;  // tools/soak has every precision and optimizer too
std::vector<Learned> learned() {
  std::vector<Learned> all{{Family::kGpt2}, {Family::kLlama}, {Family::kT5}, {Family::kT5, true}};
  if (std::getenv("SPILLWAY_EVERY_NUMERICS") == nullptr) return all;
  for (const Family family : {Family::kGpt2, Family::kLlama, Family::kT5})
    for (const Precision precision : kPrecisions)
      for (const OptimizerKind optimizer : kOptimizers)
        all.push_back({family, family == Family::kT5, {precision, optimizer}});
  return all;
}

class LongRun : public Simulated, public testing::WithParamInterface<Learned> {
 protected:
  LongRun() {
    const auto [family, pairs, numerics] = GetParam();
    config_.model = small_model(family, 4, 16, 2, family == Family::kT5 ? 12 : 8, 0.1);
    if (family == Family::kLlama) config_.model.key_value_heads = 1;
    if (family == Family::kT5) config_.model.layers = config_.model.decoder_layers = 2;
    if (pairs) config_.model.target = 8;
    config_.train = {.steps = kLong, .batch = 4, .clip = kClip, .warmup = 2};
    config_.train.numerics = numerics;
    config_.train.loss_scale = 0x1p24;  // far too large
    config_.train.loss_scale_interval = 5;
    corpus_ = pairs ? pair_corpus(scratch_, counting_pairs(80)) : test_corpus(scratch_, config_.model);
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all_.insert(layer);
    devices_.emplace_back(at::kCUDA, 1);
  }

  // The configuration's plan in the first steps, `plan` from the middle on.
  Outcome changed_to(const Plan& plan) {
    std::vector<Plan> schedule(kMiddle, config_.plan);
    schedule.resize(kLong, plan);
    return run(Injection::kNone, 0, kLong, schedule).outcome;
  }
  const Outcome& plain() { return reference(std::vector<Plan>(kLong, config_.plan)); }

  // Requests of a whole run.
  uint64_t requests() {
    const uint64_t before = core_.table()->requests();
    run(Injection::kNone, 0, kLong);
    return core_.table()->requests() - before;
  }

  static constexpr double kClip = 0.5;
  std::set<uint32_t> all_;
};
std::string name_of_run(const testing::TestParamInfo<Learned>& info) {
  const auto& [family, pairs, numerics] = info.param;
  std::string name = std::string(name_of(family)) + (pairs ? "_pairs" : "");
  if (info.index < kOfEachCommit) return name;
  name += std::string("_") + name_of(numerics.precision) + "_" + name_of(numerics.optimizer);
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Of, LongRun, testing::ValuesIn(learned()), name_of_run);

TEST_P(LongRun, OverflowsClipsAndLearns) {
  size_t overflows = 0, clipped = 0;
  for (const double norm : plain().norms) overflows += !std::isfinite(norm), clipped += norm > kClip;
  EXPECT_GE(overflows, GetParam().numerics.precision == Precision::kFp16Mixed ? 2u : 0u);
  EXPECT_GE(clipped, 3u);
  const OptimizerKind optimizer = GetParam().numerics.optimizer;
  const bool has_its_rate = optimizer != OptimizerKind::kSgd && optimizer != OptimizerKind::kAdafactor;
  EXPECT_TRUE(!has_its_rate || plain().losses.back() < plain().losses.front());
  config_.model.dropout = 0;
  EXPECT_NE(run(Injection::kNone, 0, kLong).outcome, plain()) << "dropout changes the bits";
}

TEST_P(LongRun, HasTheBitsOfThePlainRunUnderEveryBitExactPlan) {
  std::vector<Plan> plans;
  const auto with = [&](auto change) { change(plans.emplace_back(config_.plan)); };
  with([&](Plan& plan) { plan.recompute = all_; });
  with([&](Plan& plan) { plan.recompute = {1, 2}; });
  with([&](Plan& plan) { plan.recompute_attention = all_; });
  with([&](Plan& plan) { plan.recompute_mlp = all_; });
  with([&](Plan& plan) { plan.recompute = all_, plan.recompute_segment = 2; });
  with([&](Plan& plan) { plan.optimizer = Place::kHost; });
  with([&](Plan& plan) { plan.optimizer = Place::kNvme; });
  with([&](Plan& plan) { plan.placement = {{1, 1}, {3, 1}}; });
  config_.train.offload_least_bytes = 1;
  with([&](Plan& plan) { plan.offload = all_, plan.recompute = {1}, plan.placement = {{2, 1}, {3, 1}}; });
  with([&](Plan& plan) {
    plan.recompute = {0, 1}, plan.recompute_mlp = {2, 3}, plan.optimizer = Place::kHost;
    plan.placement = {{2, 1}, {3, 1}};
  });
  with([&](Plan& plan) {
    plan.parameters = plan.gradients = plan.optimizer = Place::kHost;
    plan.recompute = {0, 1}, plan.placement = {{1, 1}, {2, 1}};
  });
  with([&](Plan& plan) {
    plan.parameters = plan.gradients = Place::kNvme;
    plan.recompute = {1, 2}, plan.placement = {{3, 1}};
  });
  for (const Plan& plan : plans) EXPECT_EQ(changed_to(plan), plain()) << to_string(plan);
}

// Each time from the plan that the last failure led to: those of the recovery's choice.
TEST_P(LongRun, HasTheBitsOfItsScheduleWhereverARequestFailsUntilAMove) {
  const uint64_t all = requests();
  std::set<std::string> moves;
  for (uint64_t i = 1; i <= kPlaces; ++i) {
    const Ran ran = run(Injection::kUntilAMove, i * all / (kPlaces + 1), kLong);
    ASSERT_EQ(ran.last, StepOutcome::kDone);
    ASSERT_GT(ran.fired, 0u);
    std::istringstream actions(ran.actions);
    moves.insert(std::istream_iterator<std::string>(actions), {});
    EXPECT_EQ(ran.outcome, run(Injection::kNone, 0, kLong, ran.plans).outcome) << ran.actions;
    config_.plan = ran.plans.back();
  }
  EXPECT_GE(moves.size(), 3u) << testing::PrintToString(moves);
}

TEST_P(LongRun, HasTheBitsOfThePlainRunAfterFailures) {
  config_.recovery.floor = Guarantee::kBitExact;
  const uint64_t all = requests();
  for (uint64_t i = 1; i <= kPlaces; ++i) {
    const Ran ran = run(Injection::kOnce, i * all / (kPlaces + 1), kLong);
    EXPECT_GT(ran.fired, 0u);
    EXPECT_EQ(ran.outcome, plain()) << ran.actions;
  }
}

TEST_P(LongRun, GoesOnFromACheckpointToTheBit) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  Fixture first(config_, corpus_, devices_);
  for (uint64_t step = 0; step < kMiddle; ++step) ASSERT_EQ(first.step.run(step), StepOutcome::kDone);
  ASSERT_TRUE(save_checkpoint(path, config_, corpus_, first.program, {config_.plan}, &error)) << error;
  for (const bool moved : {false, true}) {
    Config config = config_;
    if (moved) config.plan.placement = {{1, 1}}, config.plan.recompute = all_;
    Fixture resumed(config, corpus_, devices_);
    ASSERT_TRUE(load_checkpoint(path, config, &resumed.program, &error)) << error;
    for (uint64_t step = kMiddle; step < kLong; ++step) ASSERT_EQ(resumed.step.run(step), StepOutcome::kDone);
    EXPECT_EQ(resumed.program.parameters().hash(), plain().weights) << moved;
    EXPECT_EQ(resumed.program.loss(), plain().losses.back()) << moved;
  }
}

}  // namespace
}  // namespace spillway::trainer
