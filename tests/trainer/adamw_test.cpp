// The optimizer against LibTorch's own AdamW and clipping, step by step: parameters and both moments.
#include "trainer/optimizer/adamw.h"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <ATen/Parallel.h>

namespace spillway::trainer {
namespace {

constexpr uint64_t kSteps = 12;

// LibTorch's, with the same parameters: what has two dimensions decays.
class Reference {
 public:
  Reference(const std::vector<at::Tensor>& initial, const TrainConfig& train) : train_(train) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const at::Tensor& tensor : initial) {
      values.push_back(tensor.clone().requires_grad_(true));
      auto options = std::make_unique<torch::optim::AdamWOptions>(train.learning_rate);
      options->betas({train.beta1, train.beta2}).eps(train.epsilon);
      options->weight_decay(tensor.dim() >= 2 ? train.weight_decay : 0);
      groups.emplace_back(std::vector<at::Tensor>{values.back()}, std::move(options));
    }
    optimizer_ = std::make_unique<torch::optim::AdamW>(std::move(groups), torch::optim::AdamWOptions());
  }
  void step(const std::vector<at::Tensor>& gradients, double learning_rate) {
    for (size_t i = 0; i < values.size(); ++i) values[i].mutable_grad() = gradients[i].clone();
    norm = torch::nn::utils::clip_grad_norm_(values, train_.clip);
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(learning_rate);
    optimizer_->step();
  }
  const torch::optim::AdamWParamState& state(size_t index) {
    return static_cast<torch::optim::AdamWParamState&>(
        *optimizer_->state().at(values[index].unsafeGetTensorImpl()));
  }

  std::vector<at::Tensor> values;
  double norm = 0;

 private:
  const TrainConfig train_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

class Optimizer : public testing::TestWithParam<Place> {
 protected:
  Optimizer() {
    at::set_num_threads(1);
    at::manual_seed(11);
    // The first is more than one tile.
    initial_ = {at::randn({3, AdamW::kTileElements / 2}), at::randn({5, 7}), at::randn({9})};
  }
  // Some steps are clipped and some are not.
  std::vector<at::Tensor> gradients(uint64_t step) const {
    std::vector<at::Tensor> out;
    const double scale = step % 3 == 1 ? 1e-5 : 0.5;
    for (const at::Tensor& tensor : initial_) out.push_back(scale * at::randn(tensor.sizes()));
    return out;
  }
  static void expect_near(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
    EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-8))
        << what << " by " << (actual - expected).abs().max().item().toDouble();
  }

  std::vector<at::Tensor> initial_;
  const TrainConfig train_{.steps = kSteps,
                           .learning_rate = 1e-2,
                           .minimum_learning_rate = 1e-3,
                           .weight_decay = 0.2,
                           .beta1 = 0.8,
                           .beta2 = 0.95,
                           .epsilon = 1e-6,
                           .clip = 1.0,
                           .warmup = 4};
};

TEST_P(Optimizer, GivesLibTorchsParametersAndMomentsAfterEachStep) {
  Parameters parameters({"a", "b", "c"}, initial_, std::vector<at::Device>(3, at::kCPU));
  AdamW adamw(parameters, train_, GetParam());
  Reference reference(initial_, train_);
  for (uint64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    const std::vector<at::Tensor> now = gradients(step);
    parameters.clear_gradients();
    parameters.begin_micro_batch(0);
    at::Tensor loss = at::zeros({});
    for (size_t i = 0; i < now.size(); ++i) loss = loss + (parameters.value(i) * now[i]).sum();
    loss.backward();
    adamw.prepare();
    adamw.commit(step);
    reference.step(now, learning_rate(train_, step));
    EXPECT_NEAR(adamw.gradient_norm(), reference.norm, 1e-5 * reference.norm);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < now.size(); ++i) {
      expect_near(parameters.value(i), reference.values[i], "a parameter is off");
      expect_near(adamw.first_moment(i), reference.state(i).exp_avg(), "a first moment is off");
      expect_near(adamw.second_moment(i), reference.state(i).exp_avg_sq(), "a second moment is off");
    }
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Places, Optimizer, testing::Values(Place::kDevice, Place::kHost),
                         [](const auto& info) {
                           return std::string(info.param == Place::kHost ? "OnTheHost"
                                                                         : "BesideTheParameters");
                         });

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
