// The optimizers against LibTorch's own and its clipping, step by step.
#include "trainer/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <cmath>

#include <ATen/Parallel.h>

#include "trainer/optimizer/learning_rate.h"
#include "trainer/step/loss_scale.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kSteps = 12;

template <typename Options>
std::unique_ptr<Options> adam_options(const TrainConfig& train) {
  auto options = std::make_unique<Options>(train.learning_rate);
  options->betas({train.beta1, train.beta2}).eps(train.epsilon);
  return options;
}

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> made(const std::vector<at::Tensor>& values, const Options& options,
                                              double weight_decay) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const at::Tensor& value : values) {  // what has two dimensions decays
    auto own = std::make_unique<Options>(options);
    own->weight_decay(value.dim() >= 2 ? weight_decay : 0);
    groups.emplace_back(std::vector<at::Tensor>{value}, std::move(own));
  }
  return std::make_unique<Optimizer>(std::move(groups), options);
}

std::unique_ptr<torch::optim::Optimizer> libtorch_optimizer(const std::vector<at::Tensor>& values,
                                                            const TrainConfig& train) {
  using namespace torch::optim;
  switch (train.numerics.optimizer) {
    case OptimizerKind::kAdam:
      return made<Adam>(values, *adam_options<AdamOptions>(train), train.weight_decay);
    case OptimizerKind::kSgd:
      return made<SGD>(values, SGDOptions(train.learning_rate).momentum(train.momentum), train.weight_decay);
    default:
      return made<AdamW>(values, *adam_options<AdamWOptions>(train), train.weight_decay);
  }
}

double norm_of(const std::vector<at::Tensor>& gradients) {
  double squares = 0;
  for (const at::Tensor& gradient : gradients)
    squares += gradient.to(at::kDouble).square().sum().item().toDouble();
  return std::sqrt(squares);
}

// LibTorch's, with the same parameters.
class Reference {
 public:
  Reference(const std::vector<at::Tensor>& initial, const TrainConfig& train) : train_(train) {
    for (const at::Tensor& tensor : initial) values.push_back(tensor.clone().requires_grad_(true));
    optimizer_ = libtorch_optimizer(values, train);
  }
  // Clips as torch::nn::utils::clip_grad_norm_, by a norm that is given: its own, of 32 bits, is off by more
  // than a parameter may be.
  void step(const std::vector<at::Tensor>& gradients, double learning_rate, double norm) {
    for (size_t i = 0; i < values.size(); ++i) values[i].mutable_grad() = gradients[i].clone();
    for (const at::Tensor& value : values)
      if (norm > train_.clip) value.grad().mul_(train_.clip / (norm + 1e-6));
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(learning_rate);
    optimizer_->step();
  }
  const torch::optim::AdamWParamState& state(size_t index) {
    return static_cast<torch::optim::AdamWParamState&>(
        *optimizer_->state().at(values[index].unsafeGetTensorImpl()));
  }

  std::vector<at::Tensor> values;

 private:
  const TrainConfig train_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

using Case = std::pair<OptimizerKind, Place>;

class BesideLibTorch : public testing::TestWithParam<Case> {
 protected:
  BesideLibTorch() {
    at::set_num_threads(1);
    at::manual_seed(11);
    // The first is more than one tile.
    initial_ = {at::randn({3, kTileElements / 2}), at::randn({5, 7}), at::randn({9})};
    train_.numerics.optimizer = GetParam().first;
  }
  // Some steps are clipped and some are not.
  std::vector<at::Tensor> gradients(uint64_t step) const {
    std::vector<at::Tensor> out;
    const double scale = step % 3 == 1 ? 1e-5 : 0.5;
    for (const at::Tensor& tensor : initial_) out.push_back(scale * at::randn(tensor.sizes()));
    return out;
  }
  static void expect_near(const at::Tensor& actual, const at::Tensor& expected, const char* what,
                          double apart = 1e-8) {
    EXPECT_TRUE(at::allclose(actual, expected, 1e-5, apart))
        << what << " by " << (actual - expected).abs().max().item().toDouble();
  }

  std::vector<at::Tensor> initial_;
  TrainConfig train_{.steps = kSteps,
                     .learning_rate = 1e-2,
                     .minimum_learning_rate = 1e-3,
                     .weight_decay = 0.2,
                     .beta1 = 0.8,
                     .beta2 = 0.95,
                     .epsilon = 1e-6,
                     .clip = 1.0,
                     .warmup = 4};
};

TEST_P(BesideLibTorch, GivesTheSameParametersAndMomentsAfterEachStep) {
  Parameters parameters({"a", "b", "c"}, initial_, std::vector<at::Device>(3, at::kCPU));
  Optimizer optimizer(parameters, train_, GetParam().second, initial_);
  Reference reference(initial_, train_);
  for (uint64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    const std::vector<at::Tensor> now = gradients(step);
    parameters.clear_gradients();
    parameters.begin_micro_batch(0);
    at::Tensor loss = at::zeros({});
    for (size_t i = 0; i < now.size(); ++i) loss = loss + (parameters.value(i) * now[i]).sum();
    loss.backward();
    optimizer.prepare(step);
    EXPECT_TRUE(optimizer.commit());
    const double norm = norm_of(now);
    EXPECT_NEAR(optimizer.gradient_norm(), norm, 1e-5 * norm);
    reference.step(now, learning_rate(train_, step), optimizer.gradient_norm());
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < now.size(); ++i) {
      // A value that comes near to zero keeps the roundings of when it was larger.
      expect_near(parameters.value(i), reference.values[i], "a parameter is off", 5e-7);
      if (GetParam().first != OptimizerKind::kAdamW) continue;
      expect_near(optimizer.states(i)[0], reference.state(i).exp_avg(), "a first moment is off");
      expect_near(optimizer.states(i)[1], reference.state(i).exp_avg_sq(), "a second moment is off");
    }
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, BesideLibTorch,
                         testing::Values(Case{OptimizerKind::kAdamW, Place::kDevice},
                                         Case{OptimizerKind::kAdamW, Place::kHost},
                                         Case{OptimizerKind::kAdam, Place::kDevice},
                                         Case{OptimizerKind::kSgd, Place::kHost}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.first)) +
                                  (info.param.second == Place::kHost ? "OnTheHost" : "BesideTheParameters");
                         });

// Beside the parameter it is updated whole, and from the host in tiles.
TEST(EightBitAdamW, OfAParameterOfSeveralTilesHasTheSameBitsWhereverItsStatesLie) {
  at::manual_seed(12);
  const std::vector<at::Tensor> initial{at::randn({3, kTileElements / 2 + 33})};
  TrainConfig train{.steps = 3, .weight_decay = 0.1, .clip = 1.0};
  train.numerics.optimizer = OptimizerKind::kAdamW8bit;
  const at::Tensor direction = at::randn(initial[0].sizes());
  const auto trained = [&](const std::vector<Place>& places) {
    Parameters parameters({"a"}, initial, {at::kCPU});
    Optimizer optimizer(parameters, train, places[0], initial);
    for (uint64_t step = 0; step < places.size(); ++step) {
      optimizer.move_to(places[step]);
      parameters.clear_gradients();
      parameters.begin_micro_batch(0);
      (parameters.value(0) * direction).sum().backward();
      optimizer.prepare(step);
      EXPECT_TRUE(optimizer.commit());
    }
    std::vector<at::Tensor> found = optimizer.states(0);
    found.push_back(parameters.value(0).detach());
    return found;
  };
  const auto beside = trained({Place::kDevice, Place::kDevice, Place::kDevice});
  const auto moved = trained({Place::kHost, Place::kDevice, Place::kHost});
  ASSERT_EQ(beside.size(), 5u);
  for (size_t i = 0; i < beside.size(); ++i) EXPECT_TRUE(at::equal(beside[i], moved[i])) << i;
}

// A tile is whole rows of a matrix in 8 bits, and whole blocks of 8-bit moments: more than others have.
TEST(EightBitAdamW, UpdatesRowsThatAreNoMultipleOfABlock) {
  at::manual_seed(14);
  const std::vector<at::Tensor> initial{at::randn({384, 2730}), at::randn({300, 2050})};
  TrainConfig train{.steps = 2};
  train.numerics = {Precision::kInt8, OptimizerKind::kAdamW8bit};
  ASSERT_GT(tile_elements(train.numerics, {384, 2730}, false), kTileElements);
  Parameters parameters({"matrix", "embedding"}, initial, {at::kCPU, at::kCPU}, train.numerics,
                        {true, false});
  Optimizer optimizer(parameters, train, Place::kDevice, initial);
  const at::Tensor before = parameters.value(1).detach().clone();
  parameters.clear_gradients();
  parameters.begin_micro_batch(0);
  (parameters.value(1) * at::randn_like(parameters.value(1))).sum().backward();
  optimizer.prepare(0);
  EXPECT_TRUE(optimizer.commit());
  EXPECT_FALSE(at::equal(parameters.value(1).detach().narrow(0, 299, 1), before.narrow(0, 299, 1)));
}

// One parameter whose gradient is always the same.
class Constant {
 public:
  Constant(double value, const TrainConfig& train)
      : initial_{at::full({64, 64}, value, at::kFloat)},
        parameters_({"a"}, initial_, {at::kCPU}, train.numerics),
        optimizer_(parameters_, train, Place::kDevice, initial_) {}

  void step(uint64_t number, double gradient, double loss_scale = 1) {
    parameters_.clear_gradients();
    parameters_.begin_micro_batch(0);
    (parameters_.value(0) * (gradient * loss_scale)).sum().backward();
    optimizer_.prepare(number, loss_scale);
    optimizer_.commit();
  }
  at::Tensor value() const { return parameters_.value(0).detach().to(at::kFloat); }
  at::Tensor weights() { return optimizer_.weights(0).detach().to(at::kFloat); }
  double norm() const { return optimizer_.gradient_norm(); }

 private:
  std::vector<at::Tensor> initial_;
  Parameters parameters_;
  Optimizer optimizer_;
};

TrainConfig constant_steps(Precision precision) {
  TrainConfig train{.steps = 1000, .learning_rate = 1e-4, .minimum_learning_rate = 1e-4, .weight_decay = 0};
  train.clip = 0, train.warmup = 0;
  train.numerics.precision = precision;
  return train;
}

TEST(MasterWeights, BeginUnroundedAndKeepUpdatesThatAreTooSmallForTheWeights) {
  Constant mixed(1.00051, constant_steps(Precision::kBf16Mixed));
  EXPECT_NEAR(mixed.weights().mean().item().toDouble(), 1.00051, 1e-7);
  EXPECT_EQ(mixed.value().mean().item().toDouble(), 1);
  for (uint64_t step = 0; step < 100; ++step) mixed.step(step, 0.3);
  EXPECT_NEAR(mixed.weights().mean().item().toDouble(), 1.00051 - 100 * 1e-4, 1e-4);
  EXPECT_NEAR(mixed.value().mean().item().toDouble(), 0.9905, 1.0 / 256);
  EXPECT_LT(mixed.value().max().item().toDouble(), 1);
}

TEST(WeightsInBfloat16, MoveOnAverageByUpdatesThatAreTooSmallForThem) {
  Constant half(1.0, constant_steps(Precision::kBf16));
  for (uint64_t step = 0; step < 100; ++step) half.step(step, 0.3);
  EXPECT_NEAR(half.value().mean().item().toDouble(), 1 - 100 * 1e-4, 3e-4);
}

TEST(GradientsOfFloat16, AreThoseWithoutTheLossScale) {
  TrainConfig train = constant_steps(Precision::kFp16Mixed);
  train.clip = 1;
  train.numerics.optimizer = OptimizerKind::kSgd;
  Constant scaled(1, train), plain(1, train);
  for (uint64_t step = 0; step < 4; ++step) scaled.step(step, 0.25, 4096), plain.step(step, 0.25);
  EXPECT_NEAR(scaled.norm(), 0.25 * 64, 1e-6);
  EXPECT_TRUE(at::allclose(scaled.weights(), plain.weights(), 1e-6, 0));
  EXPECT_FALSE(at::equal(plain.weights(), at::ones({64, 64})));
}

TEST(LossScaleOfFloat16, GrowsAfterARunWentOnWithAShorterInterval) {
  LossScale scale(true, 1, 5);
  scale.set_state({.scale = 4, .clean = 9});
  scale.after_step(true);
  EXPECT_EQ(scale.value(), 8);
  EXPECT_EQ(scale.state().clean, 0u);
}

TEST(LearningRate, WarmsUpAndFallsByHalfACosineToTheMinimum) {
  const TrainConfig train{.steps = 10, .learning_rate = 1e-3, .minimum_learning_rate = 1e-4, .warmup = 2};
  const auto near = [&](uint64_t step, double rate) {
    EXPECT_NEAR(learning_rate(train, step), rate, 1e-9) << step;
  };
  near(0, 5e-4);
  near(1, 1e-3);
  near(2, 1e-3);
  near(4, 8.6819805e-4);  // a quarter of the way: 1e-4 + 9e-4 (1 + cos 45°) / 2
  near(6, 5.5e-4);
  near(10, 1e-4);
  near(50, 1e-4);
}

}  // namespace
}  // namespace spillway::trainer
