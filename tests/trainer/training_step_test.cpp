// The training step against one backward pass over the whole batch: the gradient that it accumulates, and
// which batch.
#include "trainer/step/training_step.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "tests/trainer/scratch_folder.h"
#include "tests/trainer/small_models.h"
#include "tests/trainer/test_corpus.h"

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
  // The batch of a step, as the corpus has it.
  at::Tensor batch(uint64_t step) const {
    const int64_t window = config_.model.context + 1;
    std::vector<int64_t> tokens(config_.train.batch * static_cast<size_t>(window));
    Examples(corpus_, config_.model)
        .draw(config_.data.seed, step * config_.train.batch, config_.train.batch, tokens);
    return at::tensor(tokens).view({-1, window});
  }
  static double difference(const at::Tensor& a, const at::Tensor& b) {
    return (a - b).abs().max().item().toDouble();
  }

  const ScratchFolder scratch_;
  Config config_;
  Corpus corpus_;
};

TEST_F(Step, AccumulatesTheGradientOfTheMeanLossOfEachNextBatchHoweverItIsSplit) {
  PlanMoves moves(Core::get(), config_.shape(), {}, config_.recovery.floor);
  TrainingStep program(config_, corpus_, {at::Device(at::kCPU)}, config_.plan, Core::get(), moves);
  const Parameters& parameters = program.parameters();
  const std::vector<Plan> plans{{.micro_batch = 6}, {.micro_batch = 2}, {.micro_batch = 4}};
  for (uint64_t step = 0; step < plans.size(); ++step) {
    const at::Tensor loss =
        program.model().loss_sum(parameters.values(), batch(step), {}, true) / (6.0 * config_.model.context);
    const auto expected = torch::autograd::grad({loss}, parameters.values().vec());
    program.save_step();
    for (uint32_t i = 0; i < program.micro_batches(plans[step]); ++i)
      ASSERT_FALSE(program.run_micro_batch(i, plans[step]));
    EXPECT_NEAR(program.loss(), loss.item().toDouble(), 1e-5) << step;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(difference(parameters.gradient(i), expected[i]), 1e-6) << step << " " << parameters.name(i);
    ASSERT_FALSE(program.prepare_commit());
    program.commit();
  }
}

}  // namespace
}  // namespace spillway::trainer
