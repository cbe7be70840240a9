// A T5 on padded pairs against itself on each pair alone and without padding: losses, logits and gradients.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "tests/trainer/small_models.h"
#include "trainer/data/tokens.h"
#include "trainer/model/model.h"

namespace spillway::trainer {
namespace {

struct Lengths {
  int64_t source, target;
};
constexpr Lengths kPairs[] = {{12, 8}, {3, 8}, {12, 1}, {1, 1}, {7, 5}};
constexpr int64_t kContext = 12, kTarget = 8;

Architecture model_for(int64_t source, int64_t target) {
  Architecture model = small_model(Family::kT5, 2, 24, 3, uint32_t(source));
  model.target = uint32_t(target);
  model.buckets = 8, model.furthest_bucket = 10;
  return model;
}

class Padding : public testing::Test {
 protected:
  Padding() {
    at::set_num_threads(1);
    at::manual_seed(7);
    for (const at::Tensor& tensor : padded_.initial_parameters(3))
      weights_.push_back((tensor + 0.2 * at::randn(tensor.sizes())).requires_grad_(true));
    for (const Lengths& pair : kPairs) {
      const at::Tensor source = at::randint(1, 384, {1, pair.source}, at::kLong),
                       target = at::randint(1, 384, {1, pair.target}, at::kLong);
      alone_.push_back(at::cat({source, target}, 1));
      rows_.push_back(at::cat({at::constant_pad_nd(source, {0, kContext - pair.source}, kPadding),
                               at::constant_pad_nd(target, {0, kTarget - pair.target}, kPadding)},
                              1));
    }
  }
  static void expect_near(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
    const double off = (actual.detach() - expected.detach()).abs().max().item().toDouble(),
                 scale = expected.detach().abs().max().item().toDouble();
    EXPECT_LE(off, 2e-5 * scale + 1e-7) << what << ", of " << scale;
  }
  at::Tensor rows() const { return at::cat(rows_); }
  at::Tensor loss_alone(size_t pair) const {
    return Model(model_for(kPairs[pair].source, kPairs[pair].target))
        .loss_sum(weights_, alone_[pair], {}, false);
  }

  const Model padded_{model_for(kContext, kTarget)};
  std::vector<at::Tensor> weights_, alone_, rows_;
};

TEST_F(Padding, LeavesTheLossOfEachPairAsItIsAlone) {
  std::vector<at::Tensor> alone;
  alone.reserve(std::size(kPairs));
  for (size_t pair = 0; pair < std::size(kPairs); ++pair) alone.push_back(loss_alone(pair).detach());
  for (const Plan& plan : {Plan{}, Plan{.head_chunks = 3}}) {
    const at::Tensor losses = padded_.row_losses(weights_, rows(), plan);
    for (size_t pair = 0; pair < std::size(kPairs); ++pair)
      expect_near(losses[int64_t(pair)], alone[pair], std::to_string(pair) + " under " + to_string(plan));
    expect_near(padded_.loss_sum(weights_, rows(), plan, false), at::stack(alone).sum(), to_string(plan));
  }
}

TEST_F(Padding, LeavesTheLogitsOfTargetsAsTheyAreAlone) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = padded_.logits(weights_, rows());
  for (size_t pair = 0; pair < std::size(kPairs); ++pair) {
    const Model alone(model_for(kPairs[pair].source, kPairs[pair].target));
    expect_near(logits[int64_t(pair)].narrow(0, 0, kPairs[pair].target),
                alone.logits(weights_, alone_[pair])[0], std::to_string(pair));
  }
}

TEST_F(Padding, GivesTheGradientsOfThePairsAlone) {
  at::Tensor sum = at::zeros({});
  for (size_t pair = 0; pair < std::size(kPairs); ++pair) sum = sum + loss_alone(pair);
  const auto expected = torch::autograd::grad({sum}, weights_);
  const Plan recomputed{.recompute = {0, 2, 3}, .recompute_segment = 2};
  for (const Plan& plan : {Plan{}, Plan{.head_chunks = 3}, recomputed}) {
    torch::autograd::backward({padded_.loss_sum(weights_, rows(), plan, false)});
    for (size_t i = 0; i < weights_.size(); ++i) {
      expect_near(weights_[i].grad(), expected[i], padded_.table()[i].name + " under " + to_string(plan));
      weights_[i].mutable_grad().reset();
    }
  }
}

}  // namespace
}  // namespace spillway::trainer
