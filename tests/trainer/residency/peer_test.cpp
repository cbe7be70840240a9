// What a card has no room for in the memory of another card: the bits of a training that has it where it is
// used, and whose memory it takes.
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/app/trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/device_map.h"

namespace spillway::trainer {
namespace {

class OnTwoCards : public BesideThePlainRun {
 protected:
  OnTwoCards() {
    devices_.emplace_back(at::kCUDA, 1);
    config_.train.offload_least_bytes = 1;
  }

  // With what `change` sets on the second card.
  template <typename Change>
  Plan on_peer(const Change& change) const {
    Plan plan = config_.plan;
    plan.peers = {{0, 1}};
    change(plan);
    return normalised(plan);
  }
  Plan everything() const {
    return on_peer([this](Plan& plan) {
      plan.optimizer = plan.parameters = plan.gradients = plan.offload_to = Place::kPeer, plan.offload = all_;
    });
  }
};

class OnAPeer : public OnTwoCards, public testing::WithParamInterface<Streams> {
 protected:
  OnAPeer() {
    use(GetParam(), {});
    config_.train.offload_least_bytes = 1;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Of, OnAPeer,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kInt8, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdamW}},
                    Streams{Family::kT5, {Precision::kBf16Mixed, OptimizerKind::kAdafactor}}),
    case_of_streams);

TEST_P(OnAPeer, EachKindGivesTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  const std::vector<Plan> plans{
      on_peer([](Plan& plan) { plan.optimizer = Place::kPeer; }),
      on_peer([this](Plan& plan) { plan.offload = all_, plan.offload_to = Place::kPeer; }),
      on_peer([](Plan& plan) { plan.parameters = Place::kPeer; }),
      on_peer([](Plan& plan) { plan.gradients = Place::kPeer; }),
      on_peer([this](Plan& plan) { plan = everything(), plan.recompute = all_, plan.recompute_segment = 2; }),
      on_peer([this](Plan& plan) {
        plan = everything(), plan.recompute_attention = all_, plan.recompute_mlp = {1};
      }),
      on_peer([this](Plan& plan) { plan = everything(), plan.just_in_time = true; }),
      on_peer(
          [](Plan& plan) { plan.parameters = Place::kNvme, plan.optimizer = plan.gradients = Place::kPeer; }),
      on_peer([](Plan& plan) {
        plan.parameters = Place::kPeer, plan.optimizer = plan.gradients = Place::kNvme;
        plan.just_in_time = true;
      })};
  for (const Plan& plan : plans) EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// From the card to the other one, to the host, to a disk and back, with layers on either, in the middle of a
// training, where layers wait for their update.
TEST_P(OnAPeer, MovesBetweenPlacesAndCardsKeepTheBits) {
  const Plan there = everything();
  Plan host = there, spread = there, disk = there, back = there, mixed = there;
  host.optimizer = host.parameters = host.gradients = host.offload_to = Place::kHost;
  spread.placement = {{1, 1}, {3, 1}}, spread.just_in_time = true;
  disk.parameters = disk.gradients = Place::kNvme, disk.just_in_time = true;
  back.peers = {{1, 0}}, back.placement = {{0, 1}, {1, 1}};
  mixed.peers = {{0, 1}, {1, 0}}, mixed.gradients = Place::kHost, mixed.placement = spread.placement;
  EXPECT_EQ(reference({config_.plan, there, host, there, spread, disk, there, back, mixed, config_.plan}),
            reference(std::vector<Plan>(10, config_.plan)));
}

TEST_P(OnAPeer, GoesOnFromACheckpointOfAnotherPlace) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  config_.train.steps = 6;
  const auto steps = [](Fixture& fixture, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step < to; ++step) ASSERT_EQ(fixture.step.run(step), StepOutcome::kDone);
  };
  Fixture plain(config_, corpus_, devices_);
  steps(plain, 0, 6);
  Config there = config_;
  there.plan = everything();
  for (const auto& [first, second] : {std::pair(config_, there), std::pair(there, config_)}) {
    Fixture begun(first, corpus_, devices_);
    steps(begun, 0, 3);
    ASSERT_TRUE(save_checkpoint(path, first, corpus_, begun.program, {first.plan}, &error)) << error;
    const auto saved = plan_of_checkpoint(path, first, &error);
    ASSERT_TRUE(saved) << error;
    EXPECT_EQ(saved->plan, first.plan);
    Fixture resumed(second, corpus_, devices_);
    steps(resumed, 0, 1);  // what it has there is of other weights
    ASSERT_TRUE(load_checkpoint(path, second, &resumed.program, &error)) << error;
    steps(resumed, 3, 6);
    EXPECT_EQ(resumed.program.parameters().hash(), plain.program.parameters().hash());
  }
}

TEST_P(OnAPeer, TheCommitMakesNoRequest) {
  config_.plan = everything();
  expect_quiet_commit();
}

// Small ones, of which every request fails.
class PeerFailures : public OnTwoCards {
 protected:
  PeerFailures() {
    use(small_gpt2(4, 16, 2, 8, 0.1));
    config_.recovery.floor = Guarantee::kBitExact;
    config_.plan.recompute = all_;
    config_.plan.recompute_segment = 2;
    every_ = 23;
  }
};

TEST_F(PeerFailures, EveryRequestOfAStepWithAllOfItThereFailingOnceIsServedToTheBit) {
  config_.plan = everything();
  expect_served(sweep(Injection::kOnce), "");
}

TEST_F(PeerFailures, EveryRequestOfAStepWithAllOfItThereFailingUntilAMoveGivesTheUndisturbedBits) {
  config_.plan.recompute.clear();
  config_.plan = everything();
  config_.plan.offload = {0};
  expect_served(sweep(Injection::kUntilAMove), "activations_to_peer");
}

// The other card has room for what layers keep, and for no layer.
TEST_F(PeerFailures, EveryRequestFailingUntilAMoveThereGivesTheUndisturbedBits) {
  config_.plan.recompute_segment = 1;
  known_limits_ = {1 << 30, 16 << 10};
  expect_served(sweep(Injection::kUntilAMove), "activations_to_peer");
}

TEST_F(PeerFailures, EveryDriverCallFailingOnceIsServedToTheBit) {
  use(small_gpt2(4, 64, 2, 64));
  config_.plan = everything();
  every_ = 1;
  EXPECT_EQ(sweep(Injection::kDriverOnce).gave_up, 0u);
}

// The most that each card had in a step, without what it had before.
class PeerMemory : public OnTwoCards {
 protected:
  PeerMemory() {
    use(small_gpt2(6, 64, 2, 64));
    config_.train.batch = 8;
    config_.train.offload_least_bytes = 4096;
    config_.plan.micro_batch = 4;
  }

  std::vector<uint64_t> peaks_of(const Plan& plan) {
    std::vector<uint64_t> before(2), peaks(2);
    spillway_memory memory{};
    for (int device = 0; device < 2; ++device)
      if (core_.query(device, &memory)) before[size_t(device)] = memory.live;
    config_.plan = plan;
    Fixture fixture(config_, corpus_, devices_);
    for (uint64_t step = 0; step < 2; ++step) {
      for (int device = 0; device < 2; ++device) core_.reset_peaks(device);
      EXPECT_EQ(fixture.step.run(step), StepOutcome::kDone);
    }
    for (int device = 0; device < 2; ++device)
      if (core_.query(device, &memory)) peaks[size_t(device)] = memory.peak_live - before[size_t(device)];
    return peaks;
  }
};

TEST_F(PeerMemory, IsTheOtherCardsAndAsMuchAsTheEstimateSays) {
  const Plan plain = config_.plan;
  const std::vector<uint64_t> alone = peaks_of(plain);
  config_.plan = plain;
  for (const Plan& plan : {on_peer([](Plan& of) { of.optimizer = Place::kPeer; }),
                           on_peer([this](Plan& of) { of.offload = all_, of.offload_to = Place::kPeer; }),
                           on_peer([](Plan& of) { of.parameters = of.gradients = Place::kPeer; })}) {
    const Estimate needed = estimate(config_.shape(), plan, {.devices = 2});
    const std::vector<uint64_t> peaks = peaks_of(plan);
    config_.plan = plain;
    EXPECT_LT(peaks[0], alone[0]) << to_string(plan);
    EXPECT_EQ(needed.host_bytes, 0u) << to_string(plan);
    for (const size_t card : {0, 1})
      EXPECT_NEAR(double(needed.device_peak_bytes[card]), double(peaks[card]),
                  0.02 * double(peaks[card]) + 4096)
          << "card " << card << ": " << to_string(plan);
  }
}

class SmallCard : public PeerMemory {
 protected:
  SmallCard() { config_.recovery.floor = Guarantee::kBitExact; }

  Results trained(const std::string& name) {
    Config config = config_;
    config.run.out = scratch_.file(name);
    config.run.devices = 2;
    config.data.corpus = scratch_.corpus();
    config.train.steps = 3;
    for (int device = 0; device < 2; ++device) core_.table()->empty_cache(device, SPILLWAY_EVERY_POOL);
    return train(config, {.resume = "", .stop = nullptr, .quiet = true});
  }
  uint64_t live_on(int device) const {
    spillway_memory memory{};
    core_.query(device, &memory);
    return memory.live;
  }
  static std::string actions_of(const Results& results) {
    std::string actions;
    for (const RecoveryRecord& record : results.records) actions += record.action + " ";
    return actions;
  }
};

// All layers are computed again, so that what is left is to move: the idle card's memory is nearer than the
// host's.
TEST_F(SmallCard, GoesOnWithTheMemoryOfAnIdleOneAndNotTheHosts) {
  use(small_gpt2(6, 256, 4, 64));
  config_.plan.recompute = all_;
  config_.train.batch = config_.plan.micro_batch = 8;
  const Results roomy = trained("roomy");
  ASSERT_EQ(roomy.exit_code, kExitDone) << roomy.verdict;
  // Too little for a step, and enough for what is there between two.
  core_.limit(0, estimate(config_.shape(), config_.plan, {}).device_peak_bytes[0] - 4 * kMiB);
  const Results tight = trained("tight");
  ASSERT_EQ(tight.exit_code, kExitDone) << tight.verdict;
  EXPECT_THAT(actions_of(tight), testing::HasSubstr("_to_peer"));
  EXPECT_THAT(actions_of(tight), testing::Not(testing::HasSubstr("_to_host")));
  EXPECT_TRUE(tight.plan.uses_peers()) << to_string(tight.plan);
  EXPECT_EQ(tight.weights_hash, roomy.weights_hash) << to_string(tight.plan);
}

// Neither its parameters nor its gradients leave room for the moments.
TEST_F(SmallCard, BeginsWithTheMomentsOnAnIdleOne) {
  use(small_gpt2(2, 256, 4, 16));
  const Results roomy = trained("roomy");
  core_.limit(0, 24 * kMiB);
  const Results tight = trained("tight");
  ASSERT_EQ(tight.exit_code, kExitDone) << tight.verdict;
  EXPECT_EQ(tight.plan.optimizer, Place::kPeer) << to_string(tight.plan);
  EXPECT_EQ(tight.plan.peers, (DeviceMap{{0, 1}}));
  EXPECT_EQ(tight.weights_hash, roomy.weights_hash);
}

// The roomiest by the estimate, and shown.
TEST_F(SmallCard, APeerThatIsNotNamedIsChosen) {
  const Results plain = trained("plain");
  config_.plan.optimizer = Place::kPeer;
  const Results there = trained("there");
  ASSERT_EQ(there.exit_code, kExitDone) << there.verdict;
  EXPECT_EQ(there.plan.peers, (DeviceMap{{0, 1}}));
  EXPECT_EQ(there.weights_hash, plain.weights_hash);
  config_.plan.peers = {{0, 5}};
  EXPECT_THAT(trained("missing").verdict, testing::HasSubstr("there are only 2"));
}

// The peer's: what it has for others goes to the host.
TEST_F(SmallCard, APeerThatBecomesFullGivesBackWhatItHasForOthers) {
  use(small_gpt2(6, 256, 4, 64));
  const Outcome plain = reference(std::vector<Plan>(3, config_.plan));
  config_.plan = on_peer([](Plan& plan) { plan.optimizer = Place::kPeer; });
  Fixture fixture(config_, corpus_, devices_);
  std::vector<double> losses, norms;
  for (uint64_t step = 0; step < 3; ++step) {
    std::string error;
    Plan more = config_.plan;
    more.offload = all_, more.offload_to = Place::kPeer;
    if (step == 1) {
      core_.limit(1, live_on(1) + kMiB);
      EXPECT_TRUE(fixture.step.follow(step, more, &error)) << error;
    }
    EXPECT_EQ(fixture.step.run(step), StepOutcome::kDone) << fixture.step.last_failure();
    losses.push_back(fixture.program.loss()), norms.push_back(fixture.program.gradient_norm());
  }
  EXPECT_EQ((Outcome{losses, norms, fixture.program.parameters().hash()}), plain);
  ASSERT_FALSE(fixture.step.records().empty());
  EXPECT_THAT(fixture.step.records()[0].reason, testing::HasSubstr("device 1"));
  EXPECT_EQ(fixture.step.plan().optimizer, Place::kHost) << to_string(fixture.step.plan());
}

// A failure of the plan: the run goes on as it was.
TEST_F(SmallCard, APeerThatIsFullWhenThePlanIsAdoptedRefusesIt) {
  use(small_gpt2(6, 256, 4, 64));
  const Outcome plain = reference({config_.plan});
  const Plan there = on_peer([](Plan& plan) { plan.optimizer = Place::kPeer; });
  Fixture fixture(config_, corpus_, devices_);
  core_.table()->empty_cache(1, SPILLWAY_EVERY_POOL);
  core_.limit(1, 4 * kMiB);
  std::string error;
  EXPECT_FALSE(fixture.step.follow(0, there, &error));
  EXPECT_THAT(error, testing::HasSubstr("device 1"));
  EXPECT_EQ(fixture.step.run(0), StepOutcome::kDone);
  EXPECT_EQ(
      (Outcome{
          {fixture.program.loss()}, {fixture.program.gradient_norm()}, fixture.program.parameters().hash()}),
      plain);
}

}  // namespace
}  // namespace spillway::trainer
