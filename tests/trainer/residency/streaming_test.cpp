// Layers whose weights or gradients live on the host: the bits of a training that has them on the card, and
// the card's memory that they leave.
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/app/trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {
namespace {

class Streaming : public StreamedTraining {};
INSTANTIATE_TEST_SUITE_P(
    Of, Streaming,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kInt8, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdamW}},
                    Streams{Family::kT5, {Precision::kBf16Mixed, OptimizerKind::kAdafactor}}),
    case_of_streams);

TEST_P(Streaming, GivesTheBitsOfAPlainRun) {
  const Outcome plain = under(config_.plan);
  std::vector<Plan> plans;
  const auto with = [&](auto change) { change(plans.emplace_back(config_.plan)); };
  if (GetParam().family == Family::kGpt2) {
    with([](Plan& plan) { plan.parameters = Place::kHost; });
    with([](Plan& plan) { plan.gradients = Place::kHost; });
  }
  with([](Plan& plan) { plan.parameters = plan.gradients = plan.optimizer = Place::kHost; });
  with([this](Plan& plan) {
    plan.parameters = plan.gradients = Place::kHost, plan.recompute = all_, plan.recompute_segment = 2;
  });
  with([this](Plan& plan) {
    plan.parameters = plan.gradients = Place::kHost, plan.recompute_attention = all_;
    plan.recompute_mlp = {1};
  });
  for (const Plan& plan : plans) EXPECT_EQ(under(plan), plain) << to_string(plan);
}

// From the card to the host and back, to a second card and back, in the middle of a training.
TEST_P(Streaming, MovesToTheHostToAnotherCardAndBackKeepTheBits) {
  devices_.emplace_back(at::kCUDA, 1);
  const std::vector<Plan> plain(8, config_.plan);
  Plan weights = config_.plan, both = config_.plan, there = config_.plan, recomputed = config_.plan;
  weights.parameters = Place::kHost;
  both.parameters = both.gradients = Place::kHost;
  there = both;
  there.placement = {{1, 1}, {3, 1}};
  recomputed = there;
  recomputed.recompute = all_, recomputed.gradients = Place::kDevice;
  Plan moved = config_.plan;
  moved.placement = there.placement;
  EXPECT_EQ(reference({config_.plan, weights, both, there, recomputed, moved, there, config_.plan}),
            reference(plain));
}

// A step that counts what crosses the link before its update and for it.
class Watched : public TrainingStep {
 public:
  using TrainingStep::TrainingStep;
  uint64_t before_update = 0, for_update = 0;
  std::optional<Failure> prepare_commit() override {
    const uint64_t before = copied();
    auto failure = TrainingStep::prepare_commit();
    before_update += copied() - before;
    return failure;
  }
  void commit() override {
    const uint64_t before = copied();
    TrainingStep::commit();
    for_update += copied() - before;
  }

 private:
  static uint64_t copied() {
    SpillwaySimulatorCounts counts{};
    simulator().counts(&counts);
    return counts.copied_bytes;
  }
};

// Large enough for what a part's tensors are rounded up to, to be little of it.
TEST_P(Streaming, GradientsDoNotComeForTheirNormNorWeightsThatAnUpdateReplaces) {
  use(GetParam(), {.layers = 4, .width = 64});
  config_.train.numerics.optimizer = OptimizerKind::kAdamW;
  config_.train.loss_scale = 1;  // nothing overflows
  const Numerics& numerics = config_.train.numerics;
  uint64_t numbers = 0;
  for (const Parameter& parameter : parameter_table(config_.model))
    if (parameter.layer >= 0) numbers += parameter.elements();
  config_.plan.parameters = config_.plan.gradients = Place::kHost;
  PlanMoves moves(core_, config_.shape(), {}, config_.recovery.floor);
  Watched program(config_, corpus_, devices_, config_.plan, core_, moves);
  RecoverableStep step(program, config_.shape(), {}, config_.plan, config_.recovery);
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  EXPECT_GT(program.before_update, 0u);
  EXPECT_LT(program.before_update, numbers / 8);
  if (numerics.precision == Precision::kInt8) return;  // its weights are smaller
  const uint64_t ways = numerics.has_master_weights() ? 1 : 2;
  const uint64_t bytes = numbers * (numerics.gradient_bytes() + ways * numerics.weight_bytes());
  EXPECT_GE(program.for_update, bytes * 3 / 4) << "some are in their slots";
  EXPECT_LE(program.for_update, bytes + bytes / 8);
}

TEST_P(Streaming, TheCommitMakesNoRequest) {
  config_.plan.parameters = config_.plan.gradients = Place::kHost;
  expect_quiet_commits();
}

TEST_P(Streaming, GoesOnFromACheckpointOfAnotherPlace) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  config_.train.steps = 6;
  Fixture plain(config_, corpus_, devices_);
  const auto steps = [](Fixture& fixture, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step < to; ++step) ASSERT_EQ(fixture.step.run(step), StepOutcome::kDone);
  };
  steps(plain, 0, 6);
  Config on_host = config_;
  on_host.plan.parameters = on_host.plan.gradients = on_host.plan.optimizer = Place::kHost;
  on_host.plan.tiles = 2;
  for (const auto& [first, second] : {std::pair(config_, on_host), std::pair(on_host, config_)}) {
    Fixture begun(first, corpus_, devices_);
    steps(begun, 0, 3);
    ASSERT_TRUE(save_checkpoint(path, first, corpus_, begun.program, {first.plan}, &error)) << error;
    Fixture resumed(second, corpus_, devices_);
    steps(resumed, 0, 1);  // what it has on the card is of other weights
    ASSERT_TRUE(load_checkpoint(path, second, &resumed.program, &error)) << error;
    steps(resumed, 3, 6);
    EXPECT_EQ(resumed.program.parameters().hash(), plain.program.parameters().hash());
    for (size_t i = 0; i < plain.program.parameters().size(); ++i)
      EXPECT_TRUE(resumed.program.trained_weight(i).cpu().equal(plain.program.trained_weight(i).cpu())) << i;
    for (Fixture* fixture : {&resumed, &plain}) {
      fixture->program.begin_evaluation();
      ASSERT_FALSE(fixture->program.evaluate(second.plan));
      fixture->program.end_evaluation();
    }
    EXPECT_EQ(resumed.program.evaluation_loss(), plain.program.evaluation_loss());
  }
}

// Small ones, of which every request fails.
class StreamingFailures : public Simulated {
 protected:
  StreamingFailures() {
    config_.model = small_gpt2(4, 16, 2, 8, 0.1);
    config_.recovery.floor = Guarantee::kBitExact;
    every_ = 11;
  }
};

TEST_F(StreamingFailures, SlotsStayWhereThereIsNoRoomForLargerOnes) {
  const at::NoGradGuard no_grad;
  const at::Device card(at::kCUDA, 0);
  const auto block = [card](int64_t numbers) {
    return LayerBlock({{.sizes = {numbers}, .type = at::kFloat}}, card,
                      [card](int64_t bytes) { return home_in_memory(bytes, card, at::kCPU); });
  };
  LayerCache cache(card, 2);
  cache.add(0, block(64), true);
  cache.reserve();
  cache.add(1, block(1 << 20), true);
  core_.table()->fail_request(1, 1);
  EXPECT_THROW(cache.reserve(), c10::Error);
  core_.table()->fail_request(0, 0);
  for (const bool there_is_room : {false, true}) {
    if (there_is_room) cache.reserve();
    cache.follow({0});
    cache.begin(0, LayerCache::Use::kWrite);
    cache.block(0).tensor(0).add_(1);
    EXPECT_EQ(cache.block(0).tensor(0).sum().item().toFloat(), there_is_room ? 128 : 64);
    cache.end(0, LayerCache::After::kKept);
  }
}

// Of a step that is made anew with other micro-batches, whose gradients have other bits.
TEST_F(StreamingFailures, ANormIsOfTheGradientsThatTheStepEndedWith) {
  config_.plan.gradients = Place::kHost;
  Plan split = config_.plan;
  split.micro_batch = 1;
  const auto norm = [this](const std::vector<Plan>& attempts) {
    Fixture fixture(config_, corpus_, devices_);
    fixture.program.save_step();
    for (const Plan& plan : attempts) {
      fixture.program.restore_step();
      for (uint32_t i = 0; i < fixture.program.micro_batches(plan); ++i)
        EXPECT_FALSE(fixture.program.run_micro_batch(i, plan));
    }
    EXPECT_FALSE(fixture.program.prepare_commit());
    return fixture.program.gradient_norm();
  };
  EXPECT_EQ(norm({config_.plan, split}), norm({split}));
  EXPECT_NE(norm({config_.plan}), norm({split}));
}

TEST_F(StreamingFailures, EveryRequestFailingUntilAMoveGivesTheUndisturbedBits) {
  config_.plan.recompute = {0, 1, 2, 3};
  config_.plan.recompute_segment = 2;
  config_.plan.optimizer = Place::kHost;
  every_ = 17;
  expect_served(sweep(Injection::kUntilAMove), "gradients_to_host");
  config_.plan.gradients = Place::kHost;
  references_.clear();
  expect_served(sweep(Injection::kUntilAMove), "parameters_to_host");
}

TEST_F(StreamingFailures, EveryRequestOfAStreamedStepFailingOnceIsServedToTheBit) {
  config_.plan.parameters = config_.plan.gradients = Place::kHost;
  expect_served(sweep(Injection::kOnce), "");
}

TEST_F(StreamingFailures, EveryRequestOfAStreamedStepFailingUntilAMoveGivesTheUndisturbedBits) {
  config_.plan.parameters = config_.plan.gradients = Place::kHost;
  every_ = 17;
  expect_served(sweep(Injection::kUntilAMove), "recompute");
}

TEST_F(StreamingFailures, EveryDriverCallFailingOnceIsServedToTheBit) {
  config_.model = small_gpt2(4, 64, 2, 64);
  config_.plan.parameters = config_.plan.gradients = Place::kHost;
  every_ = 1;
  EXPECT_EQ(sweep(Injection::kDriverOnce).gave_up, 0u);
}

class StreamingMemory : public Simulated {
 protected:
  void train_layers(uint32_t layers, uint64_t limit, Results* results) {
    Config config = config_;
    config.model = small_gpt2(layers, 128, 2, 16);
    config.train = {.steps = 3, .batch = 2, .warmup = 1};
    config.plan = {.micro_batch = 1, .evaluation_batch = 1, .optimizer = Place::kHost};
    for (uint32_t layer = 0; layer < layers; ++layer) config.plan.recompute.insert(layer);
    config.plan.parameters = config.plan.gradients = Place::kHost;
    config.data.corpus = scratch_.corpus();
    config.run.out = scratch_.file("run");
    config.run.limit_bytes = limit;
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
    *results = train(config, {.resume = "", .stop = nullptr, .quiet = true});
    set_limits(0);
    ASSERT_EQ(results->exit_code, kExitDone) << results->verdict;
  }
};

TEST_F(StreamingMemory, ThePeakFollowsTheLargestLayerAndNotTheDepth) {
  Results few, many;
  train_layers(4, 0, &few);
  train_layers(16, 0, &many);
  const uint64_t inputs = 16 * 128 * 4;  // of a layer, kept for its backward
  EXPECT_LE(many.memory.at(0).peak_live, few.memory.at(0).peak_live + 13 * inputs);
}

// An MLP is most of a layer of such a shape.
TEST_F(StreamingMemory, ASlotHoldsALayersLargestPart) {
  Results results;
  train_layers(4, 0, &results);
  Config config = config_;
  config.model = small_gpt2(4, 128, 2, 16);
  config.train.batch = 2;
  const auto needed = double(estimate(config.shape(), results.plan, {}).device_peak_bytes[0]);
  EXPECT_NEAR(double(results.memory.at(0).peak_live), needed, 0.02 * needed);
}

TEST_F(StreamingMemory, AModelOfFourTimesTheCardTrains) {
  Results results;
  const uint64_t states = 16 * parameter_count(small_gpt2(32, 128, 2, 16));  // values, gradients and moments
  train_layers(32, states / 4, &results);
  EXPECT_TRUE(results.records.empty());
}

}  // namespace
}  // namespace spillway::trainer
