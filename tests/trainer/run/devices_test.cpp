// Layers on several simulated cards, and micro-batches under way on them: the bits are those of one card with
// one micro-batch after the other.
#include "tests/trainer/simulated.h"
#include "trainer/app/trainer.h"
#include "trainer/plan/device_map.h"

namespace spillway::trainer {
namespace {

class OnDevices : public Simulated {
 protected:
  static constexpr uint64_t kSteps = kSanitized ? 8 : 20;

  OnDevices() {
    config_.train = {.steps = kSteps, .batch = 5, .warmup = 2};
    config_.plan = {.micro_batch = 1, .evaluation_batch = 1};
    use(Family::kGpt2);
    use_devices(4);
  }

  void use(Family family) {
    config_.model = small_model_of(family, 0.1);
    config_.model.layers = 4;
    if (family == Family::kT5) config_.model.decoder_layers = 3;
    corpus_ = test_corpus(scratch_, config_.model);
  }
  void use_devices(int count) {
    devices_.clear();
    for (int device = 0; device < count; ++device) devices_.emplace_back(at::kCUDA, device);
  }

  DeviceMap odd() const {
    DeviceMap map;
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) map[layer] = (layer + 1) % 3;
    return map;
  }

  // A plan for each step: every map, with 1 to 4 micro-batches under way, each way of recomputing, and layers
  // that pass to the host.
  std::vector<Plan> plans() const {
    const Shape shape = config_.shape();
    const Machine machine{.devices = uint32_t(devices_.size())};
    const std::vector<DeviceMap> maps{device_map_even(config_.model, 2),
                                      device_map_even(config_.model, 4),
                                      device_map_balanced(shape, config_.plan, machine),
                                      odd(),
                                      {},
                                      device_map(DeviceSpread::kBalancedTime, shape, config_.plan, machine)};
    std::set<uint32_t> all;
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all.insert(layer);
    std::vector<Plan> plans;
    for (uint64_t step = 0; step < kSteps; ++step) {
      Plan plan = config_.plan;
      plan.placement = maps[step % maps.size()];
      plan.pipeline = 1 + step % 4;
      if (step % 5 == 1) plan.recompute = all, plan.recompute_segment = 2;
      if (step % 5 == 2) plan.recompute = {0};
      if (step % 5 == 3) plan.recompute_mlp = all, plan.recompute_attention = {1};
      if (step % 5 == 4) plan.parameters = plan.gradients = Place::kHost, plan.offload = {0, 1};
      plans.push_back(normalised(plan));
    }
    return plans;
  }

  void expect_the_bits_of_one_device() {
    const Ran many = run(Injection::kNone, 0, kSteps, plans());
    EXPECT_EQ(many.actions, "");
    use_devices(1);
    EXPECT_EQ(many.outcome, reference(std::vector<Plan>(kSteps, config_.plan)));
    EXPECT_EQ(violations(), "");
  }

  // Virtual nanoseconds of a step's micro-batches.
  uint64_t virtual_ns(const Plan& plan) {
    Config config = config_;
    config.plan = plan;
    Fixture fixture(config, corpus_, devices_);
    EXPECT_EQ(fixture.step.run(0), StepOutcome::kDone);
    fixture.program.save_step();
    wait_for_devices();
    const uint64_t before = counts().virtual_ns;
    for (uint32_t i = 0; i < fixture.program.micro_batches(plan); ++i) {
      fixture.program.save_micro_batch(i);
      EXPECT_FALSE(fixture.program.run_micro_batch(i, plan));
    }
    wait_for_devices();
    return counts().virtual_ns - before;
  }
  void wait_for_devices() const {
    for (const at::Device device : devices_) at::zeros({1}, at::device(device)).item();
  }
};

class FamilyOnDevices : public OnDevices, public testing::WithParamInterface<Family> {};
INSTANTIATE_TEST_SUITE_P(Of, FamilyOnDevices, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FamilyOnDevices, EveryMapAndPipelineGivesTheBitsOfOneDevice) {
  use(GetParam());
  expect_the_bits_of_one_device();
}

TEST_F(OnDevices, AnOverflowIsSkippedToTheSameBits) {
  config_.train.numerics.precision = Precision::kFp16Mixed;
  config_.train.loss_scale = 0x1p30;
  expect_the_bits_of_one_device();
  const Outcome outcome = reference(std::vector<Plan>(kSteps, config_.plan));
  EXPECT_TRUE(std::ranges::any_of(outcome.norms, [](double norm) { return !std::isfinite(norm); }));
}

TEST_F(OnDevices, AnUntiedHeadAndMicroBatchesOfSeveralSizesGiveTheSameBits) {
  config_.model.tied_head = false;
  config_.plan.micro_batch = 2;  // 2, 2 and 1
  expect_the_bits_of_one_device();
}

// The first micro-batch under way brings each layer its update.
TEST_F(OnDevices, LayersUpdatedBeforeTheirNextForwardGiveTheBitsOfOneDevice) {
  use(Family::kT5);
  Plan plan = config_.plan;
  plan.placement = odd();
  plan.pipeline = 3;
  plan.optimizer = Place::kHost;
  plan.just_in_time = true;
  const Outcome many = run(Injection::kNone, 0, 6, std::vector<Plan>(6, plan)).outcome;
  use_devices(1);
  EXPECT_EQ(many, reference(std::vector<Plan>(6, config_.plan)));
  EXPECT_EQ(violations(), "");
}

// What is left then is the time in which the host launches.
TEST_F(OnDevices, MicroBatchesUnderWayTakeLessVirtualTime) {
  config_.model = small_gpt2(8, 16, 2, 8, 0.1);
  config_.train.batch = 12;
  corpus_ = test_corpus(scratch_, config_.model);
  use_devices(2);
  Plan plan = config_.plan;
  plan.placement = device_map_even(config_.model, 2);
  const uint64_t one = virtual_ns(plan);
  plan.pipeline = 3;
  const uint64_t three = virtual_ns(plan);
  EXPECT_LT(double(three), 0.95 * double(one)) << one << " ns, " << three << " ns";
}

TEST_F(OnDevices, EveryRequestFailingOnceUnderWayIsServedToTheBit) {
  use_devices(2);
  config_.plan.placement = {{2, 1}, {3, 1}};
  config_.plan.pipeline = 2;
  every_ = 31;
  expect_served(sweep(Injection::kOnce), "");
}

TEST_F(OnDevices, EveryRequestFailingUntilABitExactMoveUnderWayGivesTheUndisturbedBits) {
  use_devices(2);
  config_.recovery.floor = Guarantee::kBitExact;
  config_.plan.placement = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};  // the first device has no layer to give
  config_.plan.pipeline = 3;
  config_.plan.recompute = {0, 1, 2, 3};
  config_.plan.optimizer = Place::kHost;
  every_ = 31;
  expect_served(sweep(Injection::kUntilAMove), "shorten_pipeline");
}

// Whichever it is: others take what the second card has left.
TEST_F(OnDevices, ADeviceThatRunsOutGivesLayersToOneWithRoom) {
  config_.model = small_gpt2(8, 128, 2, 64, 0.1);
  config_.train.batch = 4;
  config_.plan.micro_batch = 4;
  config_.plan.optimizer = Place::kHost;
  config_.recovery.floor = Guarantee::kBitExact;
  for (uint32_t layer = 0; layer < 8; ++layer) config_.plan.recompute.insert(layer);
  corpus_ = test_corpus(scratch_, config_.model);
  use_devices(3);
  for (uint32_t layer = 1; layer < 8; ++layer) config_.plan.placement[layer] = 1;
  const std::vector<Plan> given(4, config_.plan);
  const Outcome roomy = reference(given);
  for (int device = 0; device < 3; ++device) core_.table()->empty_cache(device, SPILLWAY_EVERY_POOL);
  core_.limit(1, 16 * kMiB);
  const Ran short_of = run(Injection::kNone, 0, 4, {config_.plan});
  core_.limit(1, 0);
  EXPECT_EQ(short_of.last, StepOutcome::kDone);
  EXPECT_THAT(short_of.actions, testing::HasSubstr("shift_layers"));
  EXPECT_NE(short_of.plans.back().placement, config_.plan.placement);
  EXPECT_EQ(short_of.outcome, roomy) << short_of.actions;
}

TEST_F(OnDevices, ARunSpreadsItsLayersByName) {
  config_.data.corpus = scratch_.corpus();
  config_.train.steps = 2;
  const TrainOptions quiet{.resume = "", .stop = nullptr, .quiet = true};
  config_.run.out = scratch_.file("first");
  const Results first = train(config_, quiet);
  ASSERT_EQ(first.exit_code, kExitDone) << first.verdict;
  EXPECT_TRUE(first.plan.placement.empty());
  config_.spread = DeviceSpread::kEven;
  config_.plan.pipeline = 2;
  config_.run.out = scratch_.file("even");
  const Results even = train(config_, quiet);
  ASSERT_EQ(even.exit_code, kExitDone) << even.verdict;
  EXPECT_EQ(even.plan.placement, device_map_even(config_.model, 4));
  EXPECT_EQ(even.weights_hash, first.weights_hash);
}

TEST_F(OnDevices, ARunGoesOnWhereThereAreFewerDevicesThanItsCheckpointHad) {
  config_.data.corpus = scratch_.corpus();
  config_.run.out = scratch_.file("whole");
  config_.spread = DeviceSpread::kEven;
  const Results whole = train(config_, {.resume = "", .stop = nullptr, .quiet = true});
  ASSERT_EQ(whole.exit_code, kExitDone) << whole.verdict;
  for (const uint32_t left : {2u, 1u}) {
    config_.run.out = scratch_.file("cut-" + std::to_string(left));
    config_.run.devices = 0;
    Stop stop{.signal = SIGINT};
    ASSERT_EQ(train(config_, {.resume = "", .stop = &stop, .quiet = true}).exit_code,
              exit_code_of_signal(SIGINT));
    config_.run.devices = left;
    const Results rest = train(config_, {.resume = config_.run.out, .stop = nullptr, .quiet = true});
    ASSERT_EQ(rest.exit_code, kExitDone) << rest.verdict;
    EXPECT_EQ(rest.plan.placement, device_map_even(config_.model, left));
    EXPECT_EQ(rest.weights_hash, whole.weights_hash);
    EXPECT_THAT(ScratchFolder::read(config_.run.out + "/train.log"),
                testing::HasSubstr("has more devices than the " + std::to_string(left) + " of this run"));
  }
}

}  // namespace
}  // namespace spillway::trainer
