// The training step against one backward pass over the whole batch: the gradient that it accumulates, and
// which batch; of pairs whose targets have different lengths, by the number of all of them.
#include "trainer/step/training_step.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "tests/trainer/data/pair_files.h"
#include "tests/trainer/data/test_corpus.h"
#include "tests/trainer/scratch_folder.h"
#include "tests/trainer/small_models.h"

namespace spillway::trainer {
namespace {

class Step : public testing::Test {
 protected:
  Step() {
    at::set_num_threads(1);
    config_.model = small_gpt2(2, 16, 2, 8);
    config_.train = {.steps = 4, .batch = 6, .warmup = 1};
    corpus_ = test_corpus(scratch_, config_.model);
  }
  void learn_pairs() {
    config_.model = small_model(Family::kT5, 1, 16, 2, 14);
    config_.model.target = 9;
    corpus_ = pair_corpus(scratch_, counting_pairs(80));
  }
  // The batch of a step, as the corpus has it.
  at::Tensor batch(uint64_t step) const {
    const Examples examples(corpus_, config_.model);
    std::vector<int64_t> tokens(size_t{config_.train.batch} * examples.row_tokens());
    examples.draw(config_.data.seed, step * config_.train.batch, config_.train.batch, tokens);
    return at::tensor(tokens).view({-1, examples.row_tokens()});
  }
  // Of rows, without their padding.
  double targets_in(const at::Tensor& rows) const {
    const int64_t targets = config_.model.target_tokens();
    return rows.narrow(1, rows.size(1) - targets, targets).ge(0).sum().item().toDouble();
  }
  void expect_gradients_of_the_mean();
  static double difference(const at::Tensor& a, const at::Tensor& b) {
    return (a - b).abs().max().item().toDouble();
  }

  const ScratchFolder scratch_;
  Config config_;
  Corpus corpus_;
};

void Step::expect_gradients_of_the_mean() {
  PlanMoves moves(Core::get(), config_.shape(), {}, config_.recovery.floor);
  TrainingStep program(config_, corpus_, {at::Device(at::kCPU)}, config_.plan, Core::get(), moves);
  const Parameters& parameters = program.parameters();
  const std::vector<Plan> plans{{.micro_batch = 6}, {.micro_batch = 2}, {.micro_batch = 4}};
  for (uint64_t step = 0; step < plans.size(); ++step) {
    const double targets = targets_in(batch(step));
    const at::Tensor loss = program.model().loss_sum(parameters.values(), batch(step), {}, true) / targets;
    const auto expected = torch::autograd::grad({loss}, parameters.values().vec());
    program.save_step();
    for (uint32_t i = 0; i < program.micro_batches(plans[step]); ++i)
      ASSERT_FALSE(program.run_micro_batch(i, plans[step]));
    EXPECT_EQ(double(program.targets()), targets);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(difference(parameters.gradient(i), expected[i]), 1e-6) << step << " " << parameters.name(i);
    ASSERT_FALSE(program.prepare_commit());
    EXPECT_NEAR(program.loss(), loss.item().toDouble(), 1e-5) << step;
    program.commit();
  }
}

TEST_F(Step, AccumulatesTheGradientOfTheMeanLossOfEachNextBatchHoweverItIsSplit) {
  expect_gradients_of_the_mean();
}

TEST_F(Step, AccumulatesPairsByTheTargetsOfTheWholeBatchHoweverManyAMicroBatchHas) {
  learn_pairs();
  const at::Tensor rows = batch(0);
  ASSERT_NE(targets_in(rows.narrow(0, 0, 2)), targets_in(rows.narrow(0, 2, 2)));
  expect_gradients_of_the_mean();
}

TEST_F(Step, EvaluatesPairsByAllTheirTargets) {
  learn_pairs();
  config_.evaluation.windows = 5;
  PlanMoves moves(Core::get(), config_.shape(), {}, config_.recovery.floor);
  TrainingStep program(config_, corpus_, {at::Device(at::kCPU)}, config_.plan, Core::get(), moves);
  const Examples examples(corpus_, config_.model);
  std::vector<int64_t> tokens(size_t{5} * examples.row_tokens());
  for (uint32_t i = 0; i < 5; ++i)
    examples.validation_row(
        i, 5, std::span(tokens).subspan(size_t{i} * examples.row_tokens(), examples.row_tokens()));
  const at::Tensor rows = at::tensor(tokens).view({5, -1});
  const double sum =
      program.model().loss_sum(program.parameters().values(), rows, {}, false).item().toDouble();
  program.begin_evaluation();
  ASSERT_FALSE(program.evaluate({.evaluation_batch = 2}));
  EXPECT_NEAR(program.evaluation_loss(), sum / targets_in(rows), 1e-5);
  program.end_evaluation();
}

}  // namespace
}  // namespace spillway::trainer
