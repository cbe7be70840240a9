// Layers that the host's processor updates where they live: the bits of a training whose card does, and no
// state on the link.
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/checkpoint/checkpoint.h"

namespace spillway::trainer {
namespace {

class UpdatedOnHost : public BesideThePlainRun {
 protected:
  void use(const Streams& streams) { BesideThePlainRun::use(streams, {.width = 40}); }

  Plan on_host(bool just_in_time) const {
    Plan plan = config_.plan;
    plan.parameters = plan.gradients = plan.optimizer = Place::kHost;
    plan.just_in_time = just_in_time, plan.update_on_host = true;
    return plan;
  }
  static Plan on_device(Plan plan) {
    plan.update_on_host = false;
    return plan;
  }
};

class HostUpdates : public UpdatedOnHost, public testing::WithParamInterface<Streams> {
 protected:
  HostUpdates() { use(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(
    Of, HostUpdates,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kBf16Mixed, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kLlama, {Precision::kBf16, OptimizerKind::kAdam}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdamW}}),
    case_of_streams);

TEST_P(HostUpdates, GiveTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  Plan again = on_host(true);
  again.recompute = {1, 2};
  for (const Plan& plan : {on_host(false), on_host(true), again})
    EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// In the middle of a training, where every layer waits for its update.
TEST_P(HostUpdates, WhatMovesIsUpdatedFirst) {
  devices_.emplace_back(at::kCUDA, 1);
  const std::vector<Plan> plain(8, config_.plan);
  Plan moved = on_host(true), tiled = on_host(true), disk = on_host(true);
  moved.placement = {{1, 1}, {3, 1}}, tiled.tiles = 2, disk.gradients = Place::kNvme;
  EXPECT_EQ(reference({on_host(true), moved, on_host(true), on_device(on_host(true)), on_host(false), tiled,
                       disk, config_.plan}),
            reference(plain));
}

TEST_P(HostUpdates, MakeNoRequest) {
  for (const bool just_in_time : {false, true}) {
    config_.plan = on_host(just_in_time);
    expect_quiet_commit();
  }
}

TEST_P(HostUpdates, ACheckpointHasWhatIsNew) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  config_.train.steps = 5;
  config_.train.loss_scale = 0x1p10;
  const auto steps = [](Fixture& fixture, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step < to; ++step) ASSERT_EQ(fixture.step.run(step), StepOutcome::kDone);
  };
  Fixture plain(config_, corpus_, devices_);
  steps(plain, 0, 5);
  Config there = config_;
  there.plan = on_host(true);
  {
    Fixture begun(there, corpus_, devices_);
    steps(begun, 0, 3);
    ASSERT_TRUE(save_checkpoint(path, there, corpus_, begun.program, {there.plan}, &error)) << error;
  }
  for (const Config& config : {config_, there}) {
    Fixture resumed(config, corpus_, devices_);
    steps(resumed, 0, 1);  // its layers wait for an update of other weights
    ASSERT_TRUE(load_checkpoint(path, config, &resumed.program, &error)) << error;
    steps(resumed, 3, 5);
    EXPECT_EQ(resumed.program.parameters().hash(), plain.program.parameters().hash());
  }
}

class HostUpdateFailures : public UpdatedOnHost {
 protected:
  HostUpdateFailures() {
    use({Family::kGpt2, {Precision::kBf16Mixed, OptimizerKind::kAdamW}});
    config_.recovery.floor = Guarantee::kBitExact;
    config_.plan = on_host(true);
  }

  // Requests of two steps.
  std::string sweep_steps(Injection injection) {
    constexpr uint64_t kPoints = kSanitized ? 3 : 20;
    const Outcome plain = reference(std::vector<Plan>(2, on_device(config_.plan)));
    uint64_t requests = core_.table()->requests();
    run(Injection::kNone, 0, 2);
    requests = core_.table()->requests() - requests;
    std::string actions;
    for (uint64_t i = 0; i < kPoints; ++i) {
      const uint64_t n = 1 + i * requests * 9 / (10 * kPoints);
      const Ran ran = run(injection, n, 2);
      EXPECT_GT(ran.fired, 0u) << n << " of " << requests;
      EXPECT_EQ(ran.last, StepOutcome::kDone) << n;
      EXPECT_EQ(ran.outcome, plain) << n << ": " << ran.actions;
      actions += ran.actions;
    }
    return actions;
  }
};

TEST_F(HostUpdateFailures, EveryRequestFailingOnceIsServedToTheBit) {
  sweep_steps(Injection::kOnce);
}

TEST_F(HostUpdateFailures, EveryRequestFailingUntilABitExactMoveGivesTheUndisturbedBits) {
  EXPECT_THAT(sweep_steps(Injection::kUntilAMove), testing::HasSubstr("recompute"));
}

// Of a step: gradients go to the host, weights come for each use, and nothing else of layers crosses the
// link.
TEST_F(HostUpdateFailures, NoStateCrossesTheLink) {
  const auto copied = [&](const Plan& plan) {
    config_.plan = plan;
    Fixture fixture(config_, corpus_, devices_);
    for (uint64_t step = 0; step < 2; ++step) EXPECT_EQ(fixture.step.run(step), StepOutcome::kDone);
    const uint64_t before = counts().copied_bytes;
    EXPECT_EQ(fixture.step.run(2), StepOutcome::kDone);
    return counts().copied_bytes - before;
  };
  uint64_t layers = 0;
  for (const Parameter& parameter : parameter_table(config_.model))
    layers += parameter.layer >= 0 ? parameter.elements() : 0;
  const uint64_t device = copied(on_device(on_host(false))), host = copied(on_host(false)),
                 just_in_time = copied(on_host(true));
  EXPECT_EQ(host, just_in_time);
  const uint64_t states = 2 * 12, gradient = 4, weight = 2;  // in and out, in, out
  const double fewer = double(layers * (states + gradient + weight));
  EXPECT_NEAR(double(device - host), fewer, 0.02 * fewer) << "the last ones in a slot come anew";
}

}  // namespace
}  // namespace spillway::trainer
