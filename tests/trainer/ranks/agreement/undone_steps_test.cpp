// A step that all ranks undo for one of them: the bits of a training in which that rank had its new plan from
// this step on. Ranks as threads, over Gloo.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "tests/trainer/data/test_corpus.h"
#include "tests/trainer/ranks/over_threads.h"
#include "tests/trainer/recovery/outcome.h"
#include "tests/trainer/small_models.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kStepsOfUndone = 4, kUndoneStep = 2;

// Runs out of memory once, when it has the gradients of the step and nothing of them is added up; a split is
// the only move that has room.
class AskingStep : public TrainingStep {
 public:
  using TrainingStep::TrainingStep;
  bool asks = false;
  std::optional<Failure> prepare_commit() override {
    if (step() != kUndoneStep || !std::exchange(asks, false)) return TrainingStep::prepare_commit();
    return Failure{.text = "out of memory",
                   .phase = "backward",
                   .chosen = MoveKind::kSplitMicroBatch,
                   .incident = 0,
                   .step_can_restart = false};
  }
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override {
    if (to.micro_batch == from.micro_batch && to != from) return Failure{"no room", "plan", {}};
    return TrainingStep::adopt(from, to);
  }
};

struct UndoneCase {
  std::string name;
  Numerics numerics{};
  uint32_t zero = 0;
  Place optimizer = Place::kDevice;
  bool just_in_time = false;
  Place layers = Place::kDevice;  // their weights and gradients
  uint32_t batch = 16;
  bool all_follow() const { return zero >= 2; }
};

class UndoneSteps : public testing::TestWithParam<UndoneCase> {
 protected:
  UndoneSteps() {
    at::set_num_threads(1);
    const UndoneCase& of = GetParam();
    config_.model = small_gpt2(2, 48, 2, 8);
    config_.data.workers = 0;
    config_.train = {
        .steps = kStepsOfUndone, .batch = of.batch, .clip = 0.5, .numerics = of.numerics, .warmup = 1};
    config_.train.loss_scale = 0x1p22;
    config_.plan = {.micro_batch = 4, .evaluation_batch = 4, .optimizer = of.optimizer};
    config_.plan.just_in_time = of.just_in_time;
    config_.plan.parameters = config_.plan.gradients = of.layers;
    if (of.all_follow()) config_.plan.recompute = {0};
    config_.run.zero = of.zero;
    config_.run.nvme_least_bytes = 0;
    corpus_ = test_corpus(scratch_, config_.model);
  }

  // `asks`: the rank that asks; with `split` it has the split from that step on, and asks for nothing. From
  // stage 2 on all ranks have it then.
  std::vector<Outcome> train(uint32_t asks, bool split) {
    std::vector<Outcome> outcomes(2);
    std::mutex mutex;
    on_ranks(2, [&](const std::shared_ptr<Ranks>& ranks) {
      Config config = config_;
      config.run.nvme = scratch_.file(std::to_string(ranks->rank()));
      std::filesystem::create_directories(config.run.nvme);
      PlanMoves moves(Core::get(), config.shape(), {}, config.recovery.floor);
      AskingStep program(config, corpus_, {at::kCPU}, config.plan, Core::get(), moves, Mesh(ranks));
      RecoverableStep step(program, config.shape(), {}, config.plan, config.recovery);
      program.asks = ranks->rank() == asks && !split;
      Outcome outcome;
      for (uint64_t number = 0; number < kStepsOfUndone; ++number) {
        Plan half = config.plan;
        half.micro_batch = 2;
        std::string error;
        if (split && number == kUndoneStep && has_split(ranks->rank(), asks))
          step.follow(number, half, &error);
        EXPECT_EQ(step.run(number), StepOutcome::kDone);
        outcome.losses.push_back(program.loss());
        outcome.norms.push_back(program.gradient_norm());
      }
      outcome.weights = program.parameters().hash();
      EXPECT_EQ(step.plan().micro_batch, has_split(ranks->rank(), asks) ? 2u : 4u);
      EXPECT_EQ(step.records().size(), split ? 0u : 1u);
      const std::lock_guard lock(mutex);
      outcomes[ranks->rank()] = std::move(outcome);
    });
    return outcomes;
  }

  static bool has_split(uint32_t rank, uint32_t asks) { return GetParam().all_follow() || rank == asks; }

  ScratchFolder scratch_;
  Config config_;
  Corpus corpus_;
};

TEST_P(UndoneSteps, HaveTheBitsOfTheNewPlan) {
  for (const uint32_t asks : {0u, 1u}) EXPECT_EQ(train(asks, false), train(asks, true)) << asks;
}

INSTANTIATE_TEST_SUITE_P(
    Of, UndoneSteps,
    testing::Values(
        UndoneCase{"plain"}, UndoneCase{"just_in_time", {}, 0, Place::kHost, true},
        UndoneCase{"float16_shared", {Precision::kFp16Mixed}, 1},
        UndoneCase{"int8_shared_nvme", {Precision::kInt8}, 1, Place::kNvme},
        UndoneCase{"in_8_bits", {Precision::kBf16, OptimizerKind::kAdamW8bit}, 0, Place::kNvme},
        UndoneCase{"adafactor", {Precision::kFloat32, OptimizerKind::kAdafactor}},
        // Of 7 rows and 6: in halves the second rank has no rows in the last pass.
        UndoneCase{"gradients_together", {}, 2, Place::kDevice, false, Place::kHost, 13},
        UndoneCase{"gradients_together_int8", {Precision::kInt8}, 2, Place::kHost, false, Place::kNvme, 13},
        UndoneCase{"layers_together", {}, 3, Place::kDevice, false, Place::kDevice, 13},
        UndoneCase{"layers_together_host", {Precision::kBf16Mixed}, 3, Place::kHost, false, Place::kHost, 13},
        UndoneCase{
            "layers_together_nvme", {Precision::kFp16Mixed}, 3, Place::kNvme, false, Place::kNvme, 13}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace spillway::trainer
