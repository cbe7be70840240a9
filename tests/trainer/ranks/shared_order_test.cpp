// The order in which ranks that share gradients and weights add up, beside one that is written down here:
// each micro-batch over the ranks, in their order, and then the micro-batches. Models of each family.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/trainer/data/test_corpus.h"
#include "tests/trainer/ranks/over_threads.h"
#include "tests/trainer/small_models.h"
#include "trainer/optimizer/learning_rate.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

using Tensors = std::vector<at::Tensor>;

class SharedOrder : public testing::TestWithParam<Family> {
 protected:
  SharedOrder() {
    at::set_num_threads(1);
    config_.model = small_model(GetParam(), 2, 48, 2, 8);
    config_.data.workers = 0;
    config_.train = {.steps = 2, .batch = 7, .clip = 0, .numerics = {.optimizer = OptimizerKind::kSgd}};
    config_.train.momentum = config_.train.weight_decay = 0;
    corpus_ = test_corpus(scratch_, config_.model);
  }

  at::Tensor batch() const {
    const Examples examples(corpus_, config_.model);
    at::Tensor rows = at::empty({config_.train.batch, examples.row_tokens()}, at::kLong);
    examples.draw(config_.data.seed, 0, config_.train.batch,
                  std::span(rows.mutable_data_ptr<int64_t>(), size_t(rows.numel())));
    return rows;
  }

  Tensors gradients(const Model& model, const Tensors& weights, const at::Tensor& rows, double scale) const {
    Tensors leaves;
    for (const at::Tensor& weight : weights) leaves.push_back(weight.detach().requires_grad_(true));
    torch::autograd::backward({model.loss_sum(leaves, rows, config_.plan, true) * scale});
    Tensors all;
    for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
    return all;
  }

  // The weights behind a step of so many ranks.
  Tensors reference(uint32_t size, uint32_t micro_batch) const {
    const Model model(config_.model);
    const at::Tensor rows = batch();
    const double targets = double(rows.size(0)) * config_.model.target_tokens();
    Tensors weights = model.initial_parameters(config_.train.seed), sums;
    for (const at::Tensor& weight : weights) sums.push_back(at::zeros_like(weight));
    const int64_t all = rows.size(0), largest = (all + size - 1) / size;
    for (int64_t begin = 0; begin < largest; begin += micro_batch) {
      Tensors of_ranks(weights.size());
      for (int64_t rank = 0, first = 0, count = 0; rank < int64_t{size}; ++rank, first += count) {
        count = all / size + (rank < all % size ? 1 : 0);
        const int64_t here = std::min<int64_t>(micro_batch, count - begin);
        if (here <= 0) continue;
        const Tensors mine = gradients(model, weights, rows.narrow(0, first + begin, here), 1 / targets);
        for (size_t i = 0; i < mine.size(); ++i)
          of_ranks[i] = of_ranks[i].defined() ? of_ranks[i] + mine[i] : mine[i];
      }
      for (size_t i = 0; i < sums.size(); ++i) sums[i].add_(of_ranks[i]);
    }
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = weights[i].add(sums[i], -learning_rate(config_.train, 0));
    return weights;
  }

  Tensors trained(uint32_t size, uint32_t zero) const {
    Tensors weights;
    on_ranks(size, [&](const std::shared_ptr<Ranks>& ranks) {
      Config config = config_;
      config.run.zero = zero;
      PlanMoves moves(Core::get(), config.shape(), {}, config.recovery.floor);
      TrainingStep program(config, corpus_, {at::kCPU}, config.plan, Core::get(), moves, Mesh(ranks));
      RecoverableStep step(program, config.shape(), {}, config.plan, config.recovery);
      EXPECT_EQ(step.run(0), StepOutcome::kDone);
      if (!ranks->leads()) return program.whole_states().serve();
      for (size_t i = 0; i < program.model().table().size(); ++i)
        weights.push_back(program.whole_states().stored(i, 0));
      program.whole_states().end();
    });
    return weights;
  }

  ScratchFolder scratch_;
  Config config_;
  Corpus corpus_;
};

TEST_P(SharedOrder, IsThatOfTheMicroBatches) {
  for (const uint32_t size : {2u, 3u})
    for (const uint32_t rows : {1u, 2u}) {
      config_.plan.micro_batch = rows;
      config_.plan.recompute = rows == 1 ? std::set<uint32_t>{0} : std::set<uint32_t>{};
      const Tensors expected = reference(size, rows);
      for (const uint32_t zero : {2u, 3u}) {
        const Tensors weights = trained(size, zero);
        ASSERT_EQ(weights.size(), expected.size());
        for (size_t i = 0; i < weights.size(); ++i)
          EXPECT_TRUE(weights[i].equal(expected[i]))
              << size << " ranks, " << rows << " rows, stage " << zero << ", parameter " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(OfFamilies, SharedOrder, testing::Values(Family::kGpt2, Family::kLlama, Family::kT5),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace spillway::trainer
