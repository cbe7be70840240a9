// What layers keep on the host between forward and backward: trainings on simulated cards, against the same
// ones that keep it on the device.
#include "trainer/residency/activations/activation_pass.h"

#include "tests/trainer/simulated.h"

namespace spillway::trainer {
namespace {

class Activations : public Simulated {
 protected:
  Activations() { use(small_gpt2(4, 16, 2, 8, 0.1)); }
  ~Activations() override { EXPECT_EQ(violations(), ""); }

  void use(const Architecture& model) {
    config_.model = model;
    config_.train.offload_least_bytes = 1;
    for (uint32_t layer = 0; layer < model.all_layers(); ++layer) all_.insert(layer);
    corpus_ = test_corpus(scratch_, model);
  }
  Plan offloaded(const std::set<uint32_t>& layers) const {
    Plan plan = config_.plan;
    plan.offload = layers;
    return plan;
  }

  std::set<uint32_t> all_;
};

class ActivationsOfFamily : public Activations, public testing::WithParamInterface<Family> {
 protected:
  ActivationsOfFamily() {
    Architecture model = small_model_of(GetParam(), 0.1);
    model.layers = 3;
    use(model);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, ActivationsOfFamily, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(ActivationsOfFamily, OnTheHostGiveTheSameBitsHoweverTheLayersAreComputed) {
  Plan again = offloaded(all_), parts = offloaded(all_), segments = offloaded(all_);
  again.recompute = all_;
  parts.recompute_attention = {0, 2}, parts.recompute_mlp = {1};
  segments.recompute = all_, segments.recompute_segment = 2;
  const std::vector<Plan> plans{offloaded({0}), offloaded(all_), again, parts, segments, offloaded({0, 2})};
  EXPECT_EQ(reference(plans), reference(std::vector<Plan>(plans.size(), config_.plan)));
}

TEST_P(ActivationsOfFamily, OfTwoDevicesGoToTheHostToo) {
  devices_.emplace_back(at::kCUDA, 1);
  Plan moved = offloaded(all_), odd = offloaded(all_);
  for (const uint32_t layer : all_) {
    if (layer >= all_.size() / 2) moved.placement[layer] = 1;
    if (layer % 2 == 1) odd.placement[layer] = 1;
  }
  odd.recompute = {0, 1};
  EXPECT_EQ(reference({moved, odd, moved}), reference(std::vector<Plan>(3, config_.plan)));
}

class ActivationsOfNumerics : public Activations, public testing::WithParamInterface<Numerics> {};
INSTANTIATE_TEST_SUITE_P(Of, ActivationsOfNumerics,
                         testing::Values(Numerics{}, Numerics{Precision::kBf16Mixed},
                                         Numerics{Precision::kFp16Mixed}, Numerics{Precision::kInt8}),
                         [](const auto& info) { return case_name(info.param); });

TEST_P(ActivationsOfNumerics, OnTheHostGiveTheSameBitsForTwentySteps) {
  config_.train.numerics = GetParam();
  config_.train.loss_scale = 0x1p30;  // float16's first steps overflow and are skipped
  config_.train.clip = 0.1;
  config_.train.steps = 20;
  EXPECT_EQ(reference(std::vector<Plan>(20, offloaded(all_))),
            reference(std::vector<Plan>(20, config_.plan)));
}

// The most that the device had, and that the host was given, in a step of this plan.
struct Needs {
  uint64_t device = 0, host = 0, to_host = 0, to_device = 0;
};

class ActivationsInSizes : public Activations {
 protected:
  ActivationsInSizes() {
    use(small_gpt2(6, 64, 2, 64));
    config_.train.batch = 8;
    config_.train.offload_least_bytes = 4096;
    config_.plan.micro_batch = 4;
  }

  Needs measured(const Plan& plan, uint64_t steps) {
    const uint64_t before = live();
    Fixture run(config_, corpus_, devices_);
    std::string error;
    EXPECT_TRUE(run.step.follow(0, plan, &error)) << error;
    Needs needs;
    for (uint64_t step = 0; step < steps; ++step) {
      core_.reset_peaks(0);
      EXPECT_EQ(run.step.run(step), StepOutcome::kDone);
      const ActivationHost& host = run.program.activations();
      if (step > 0) {
        EXPECT_EQ(host.block_bytes(), needs.host) << "blocks are used again";
      }
      needs.host = host.block_bytes();
      needs.to_host = host.bytes_to_host, needs.to_device = host.bytes_to_device;
    }
    spillway_memory memory{};
    core_.query(0, &memory);
    needs.device = memory.peak_live - before;
    EXPECT_TRUE(run.step.follow(steps, config_.plan, &error)) << error;
    EXPECT_EQ(run.program.activations().block_bytes(), 0u) << "the host has its memory back";
    return needs;
  }
};

TEST_F(ActivationsInSizes, TakeTheMemoryThatTheEstimateSays) {
  const Plan plan = offloaded(all_);
  const Estimate needed = estimate(config_.shape(), plan, {});
  const Needs plain = measured(config_.plan, 2), host = measured(plan, 2);
  EXPECT_NEAR(double(host.device), double(needed.device_peak_bytes[0]), 0.02 * double(host.device));
  EXPECT_NEAR(double(host.host), double(needed.host_bytes), 0.01 * double(host.host));
  EXPECT_LT(host.device, plain.device * 2 / 3);
  EXPECT_EQ(plain.host, 0u);
  EXPECT_EQ(host.to_host, 4 * host.host) << "of two micro-batches in two steps";
  EXPECT_EQ(host.to_device, host.to_host);
}

TEST_F(ActivationsInSizes, TakeNoMoreOfTheHostAfterAHundredSteps) {
  use(small_gpt2(3, 16, 2, 8, 0.1));
  config_.plan.micro_batch = 3;  // and a last one of two rows
  config_.train.steps = 100;
  EXPECT_GT(measured(offloaded(all_), 100).host, 0u);
}

TEST_F(Activations, EveryRequestFailingOnceIsServedToTheBit) {
  use(small_gpt2(3, 16, 2, 8, 0.1));
  config_.plan.offload = all_;
  every_ = 7;
  expect_served(sweep(Injection::kOnce), "");
}

TEST_F(Activations, EveryRequestFailingUntilABitExactMoveGivesTheUndisturbedBits) {
  use(small_gpt2(3, 16, 2, 8, 0.1));
  config_.recovery.floor = Guarantee::kBitExact;
  config_.plan.offload = {0};
  every_ = 7;
  expect_served(sweep(Injection::kUntilAMove), "offload_activations");
}

TEST_F(Activations, EveryDriverCallFailingOnceIsServedToTheBit) {
  use(small_gpt2(3, 64, 2, 64));
  config_.plan.offload = all_;
  const Sweep swept = sweep(Injection::kDriverOnce);
  EXPECT_GT(swept.points, 0u);
  EXPECT_EQ(swept.gave_up, 0u);
}

TEST_F(Activations, AHostThatHasNoMoreIsAnsweredByAnotherPlan) {
  config_.plan.offload = {0};
  const Outcome plain = reference({config_.plan});
  Fixture run(config_, corpus_, devices_);
  simulator().fail_call(2, "cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(run.step.run(0), StepOutcome::kDone);
  ASSERT_EQ(run.step.records().size(), 1u);
  EXPECT_THAT(run.step.records()[0].reason, testing::HasSubstr("the host has no"));
  EXPECT_NE(run.step.records()[0].incident, 0u) << "the report knows nothing of it";
  EXPECT_EQ((Outcome{{run.program.loss()}, {run.program.gradient_norm()}, run.program.parameters().hash()}),
            plain);
}

TEST_F(Activations, AnEvaluationKeepsNothing) {
  config_.plan.offload = all_;
  Fixture run(config_, corpus_, devices_);
  run.program.begin_evaluation();
  EXPECT_FALSE(run.program.evaluate(config_.plan));
  run.program.end_evaluation();
  EXPECT_EQ(run.program.activations().bytes_to_host, 0u);
}

}  // namespace
}  // namespace spillway::trainer
