// Layers that are updated right before their next forward: the bits of a training that updates them at the
// step's end, whatever fails, moves, is evaluated or saved while they wait.
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/optimizer/states/nvme_states.h"

namespace spillway::trainer {
namespace {

class LearnsJustInTime : public BesideThePlainRun {
 protected:
  void use(const Streams& streams) { BesideThePlainRun::use(streams, {.width = 40}); }

  Plan in_time(Place layers, Place optimizer = Place::kDevice) const {
    Plan plan = config_.plan;
    plan.parameters = plan.gradients = layers;
    plan.optimizer = optimizer;
    plan.just_in_time = true;
    return plan;
  }
  static double evaluated(Fixture& fixture) {
    fixture.program.begin_evaluation();
    EXPECT_FALSE(fixture.program.evaluate(fixture.step.plan()));
    fixture.program.end_evaluation();
    return fixture.program.evaluation_loss();
  }
};

class JustInTime : public LearnsJustInTime, public testing::WithParamInterface<Streams> {
 protected:
  JustInTime() { use(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(
    Of, JustInTime,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kBf16Mixed, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kLlama, {Precision::kInt8, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdafactor}}),
    case_of_streams);

TEST_P(JustInTime, GivesTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  std::vector<Plan> plans{in_time(Place::kHost, Place::kHost), in_time(Place::kHost, Place::kNvme)};
  plans[0].recompute = {1, 2}, plans[0].update_slots = 9;  // most of a layer's
  plans[1].recompute = all_, plans[1].recompute_segment = 2;
  if (GetParam().family == Family::kGpt2) {
    plans.resize(5, in_time(Place::kDevice));
    plans[2].parameters = Place::kHost, plans[2].recompute_attention = all_;
    plans[3].gradients = Place::kHost, plans[3].recompute_mlp = {1};
  }
  for (const Plan& plan : plans) EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// In the middle of a training, where every layer waits for its update.
TEST_P(JustInTime, WhatMovesIsUpdatedFirst) {
  devices_.emplace_back(at::kCUDA, 1);
  const std::vector<Plan> plain(10, config_.plan);
  Plan there = in_time(Place::kHost), moved = in_time(Place::kDevice), at_commit = there;
  Plan ahead = in_time(Place::kDevice, Place::kHost);
  ahead.update_slots = 50;
  there.placement = moved.placement = {{1, 1}, {3, 1}};
  at_commit.just_in_time = false;
  EXPECT_EQ(reference({in_time(Place::kDevice), in_time(Place::kHost), there, moved,
                       in_time(Place::kDevice, Place::kHost), ahead, in_time(Place::kDevice, Place::kNvme),
                       in_time(Place::kHost), at_commit, in_time(Place::kDevice)}),
            reference(plain));
}

// Neither the commit nor the layers' updates, which the checkpoint's reader has done here.
TEST_P(JustInTime, TheUpdateMakesNoRequest) {
  for (const Place place : {Place::kDevice, Place::kHost, Place::kNvme}) {
    config_.plan = in_time(place == Place::kDevice ? Place::kDevice : Place::kHost, place);
    expect_quiet_commit();
  }
}

TEST_P(JustInTime, AnEvaluationAndACheckpointSeeWhatIsNew) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  config_.train.steps = 6;
  config_.train.loss_scale = 0x1p10;
  const auto steps = [](Fixture& fixture, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step < to; ++step) ASSERT_EQ(fixture.step.run(step), StepOutcome::kDone);
  };
  Config late = config_;
  late.plan = in_time(Place::kHost);
  Fixture plain(config_, corpus_, devices_);
  steps(plain, 0, 3);
  const double after_three = evaluated(plain);
  steps(plain, 3, 6);
  {
    Fixture begun(late, corpus_, devices_);
    steps(begun, 0, 3);
    EXPECT_EQ(evaluated(begun), after_three);
    steps(begun, 3, 4);
    ASSERT_TRUE(save_checkpoint(path, late, corpus_, begun.program, {late.plan}, &error)) << error;
  }
  for (const Config& config : {config_, late}) {
    Fixture resumed(config, corpus_, devices_);
    steps(resumed, 0, 1);  // its layers wait for an update of other weights
    ASSERT_TRUE(load_checkpoint(path, config, &resumed.program, &error)) << error;
    steps(resumed, 4, 6);
    for (size_t i = 0; i < plain.program.parameters().size(); ++i)
      EXPECT_TRUE(resumed.program.trained_weight(i).cpu().equal(plain.program.trained_weight(i).cpu())) << i;
    EXPECT_EQ(resumed.program.parameters().hash(), plain.program.parameters().hash());
    EXPECT_EQ(evaluated(resumed), evaluated(plain));
  }
}

// Requests of the second step's beginning, where the layers are updated.
class JustInTimeFailures : public LearnsJustInTime {
 protected:
  JustInTimeFailures() {
    use({Family::kGpt2, {Precision::kBf16Mixed, OptimizerKind::kAdamW}});
    config_.recovery.floor = Guarantee::kBitExact;
  }

  static Plan at_commit(Plan plan) {
    plan.just_in_time = false;
    return plan;
  }

  // Expects the bits of the same plans with the update at the step's end.
  std::string sweep_second_step(Injection injection) {
    uint64_t first = core_.table()->requests();
    run(Injection::kNone, 0, 1);
    first = core_.table()->requests() - first;
    std::string actions;
    const uint64_t at_rest = live();
    for (uint64_t i = 0; i < kPoints; ++i) {
      const uint64_t n = first + 1 + i * first / (5 * kPoints);  // of two micro-batches the first forward
      const Ran ran = run(injection, n, 2);
      EXPECT_GT(ran.fired, 0u);
      EXPECT_EQ(ran.last, StepOutcome::kDone) << n;
      EXPECT_EQ(live(), at_rest) << "leaked at " << n;
      std::vector<Plan> plans;
      for (const Plan& plan : ran.plans) plans.push_back(at_commit(plan));
      EXPECT_EQ(ran.outcome, reference(plans)) << n << ": " << ran.actions;
      actions += ran.actions;
    }
    return actions;
  }

  static constexpr uint64_t kPoints = 12;
};

TEST_F(JustInTimeFailures, EveryRequestFailingOnceIsServedToTheBit) {
  config_.plan = in_time(Place::kHost, Place::kHost);
  sweep_second_step(Injection::kOnce);
  devices_.emplace_back(at::kCUDA, 1);
  config_.plan = in_time(Place::kPeer, Place::kPeer);
  config_.plan.peers = {{0, 1}};
  sweep_second_step(Injection::kOnce);
}

TEST_F(JustInTimeFailures, EveryRequestFailingUntilABitExactMoveGivesTheUndisturbedBits) {
  config_.plan = in_time(Place::kHost, Place::kHost);
  EXPECT_THAT(sweep_second_step(Injection::kUntilAMove), testing::HasSubstr("recompute"));
  Plan ahead = config_.plan;
  ahead.recompute = all_, ahead.recompute_segment = 2, ahead.update_slots = 12;
  std::swap(config_.plan, ahead);
  EXPECT_THAT(sweep_second_step(Injection::kUntilAMove), testing::HasSubstr("fewer_update_slots"));
  std::swap(config_.plan, ahead);
  devices_.emplace_back(at::kCUDA, 1);
  EXPECT_THAT(sweep_second_step(Injection::kUntilAMove), testing::HasSubstr("shift_layers"));
  config_.plan = in_time(Place::kDevice);
  EXPECT_THAT(sweep_second_step(Injection::kUntilAMove), testing::HasSubstr("parameters_to_peer"));
  devices_.pop_back();
  EXPECT_THAT(sweep_second_step(Injection::kUntilAMove), testing::HasSubstr("parameters_to_host"));
}

TEST_F(JustInTimeFailures, EveryRequestFailingUntilASplitGivesTheBitsOfThatSchedule) {
  config_.recovery.floor = Guarantee::kNumericallyEqual;
  config_.plan = in_time(Place::kHost, Place::kHost);
  config_.plan.recompute = all_;
  config_.plan.recompute_segment = 2;
  config_.plan.offload = all_;
  config_.plan.head_chunks = 2;
  config_.plan.tiles = 2;
  EXPECT_THAT(sweep_second_step(Injection::kUntilAMove), testing::HasSubstr("split_micro_batch"));
}

// Of the evaluation behind two steps, and the step after it.
TEST_F(JustInTimeFailures, AnEvaluationThatFailsLeavesWhatWaits) {
  config_.plan = in_time(Place::kHost);
  config_.plan.evaluation_batch = 1;
  config_.plan.recompute = all_;
  core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);  // what other tests left would serve a failed request
  const auto trained = [&](uint64_t n) {
    Fixture fixture(config_, corpus_, devices_);
    EXPECT_EQ(fixture.step.run(0), StepOutcome::kDone);
    core_.table()->fail_request(n, 0);
    fixture.program.begin_evaluation();
    const auto failure = fixture.program.evaluate(config_.plan);
    core_.table()->fail_request(0, 0);
    EXPECT_EQ(failure.has_value(), n > 0);
    EXPECT_FALSE(failure && fixture.program.evaluate(config_.plan)) << "once more";
    fixture.program.end_evaluation();
    EXPECT_EQ(fixture.step.run(1), StepOutcome::kDone);
    return Outcome{{fixture.program.evaluation_loss(), fixture.program.loss()},
                   {fixture.program.gradient_norm()},
                   fixture.program.parameters().hash()};
  };
  const Outcome in_time = trained(0);
  config_.plan.just_in_time = false;
  const Outcome plain = trained(0);
  EXPECT_EQ(in_time, plain);
  config_.plan.just_in_time = true;
  for (const uint64_t n : {1, 9, 20, 33, 47}) EXPECT_EQ(trained(n), plain) << n;
}

}  // namespace
}  // namespace spillway::trainer
