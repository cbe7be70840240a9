// The training step on simulated GPUs, with Spillway's allocator and its ladder: true values, real failures.
// Every request of a step fails once, from there on, and until a plan move is made; every driver call too.
#include <nlohmann/json.hpp>

#include <ATen/cuda/CUDAContextLight.h>
#include <unistd.h>

#include "tests/trainer/residency/failing_io.h"
#include "tests/trainer/simulated.h"
#include "trainer/app/automatic_plan.h"
#include "trainer/app/trainer.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {
namespace {

TEST_F(Simulated, GivesTheBitsOfTheCpu) {
  const Outcome gpu = reference({config_.plan, config_.plan});
  devices_ = {at::Device(at::kCPU)};
  references_.clear();
  EXPECT_EQ(reference({config_.plan, config_.plan}), gpu);
}

TEST_F(Simulated, GivesTheBitsOfTheCpuWithEightBitMomentsToo) {
  config_.model = small_gpt2(2, 40, 2, 8);  // matrices that are quantized and some that are not
  config_.train.numerics.optimizer = OptimizerKind::kAdamW8bit;
  corpus_ = test_corpus(scratch_, config_.model);
  const Outcome gpu = reference({config_.plan, config_.plan});
  devices_ = {at::Device(at::kCPU)};
  references_.clear();
  EXPECT_EQ(reference({config_.plan, config_.plan}), gpu);
}

TEST_F(Simulated, TheCommitMakesNoRequest) {
  expect_quiet_commits();
}

// Every write of a run from there on, every read once; beside copies on the device's streams.
TEST_F(Simulated, ADiskThatFailsChangesNoBit) {
  const FailingIo failing;
  config_.train.numerics.precision = Precision::kBf16Mixed;
  const Outcome plain = run(Injection::kNone, 0, 3).outcome;
  config_.plan.optimizer = Place::kNvme;
  for (const IoFault& kind : {IoFault{.writes = true, .at = 1, .persistent = true, .error = ENOSPC},
                              IoFault{.at = 1, .error = EIO}}) {
    uint64_t fired = 0;
    for (uint64_t n = 1;; n += 9) {
      FailingIo::arm({});
      Fixture fixture(config_, corpus_, devices_);
      IoFault fault = kind;
      fault.at = n;
      FailingIo::arm(fault);
      Outcome outcome;
      for (uint64_t step = 0; step < 3; ++step) {
        ASSERT_EQ(fixture.step.run(step), StepOutcome::kDone);
        outcome.losses.push_back(fixture.program.loss()),
            outcome.norms.push_back(fixture.program.gradient_norm());
      }
      fixture.program.optimizer().states(0);
      outcome.weights = fixture.program.parameters().hash();
      EXPECT_EQ(outcome, plain) << n;
      if (FailingIo::fired == 0) break;
      fired += FailingIo::fired;
    }
    EXPECT_GT(fired, 5u);
  }
  EXPECT_EQ(violations(), "");
}

TEST_F(Simulated, EveryRequestFailingOnceIsServedToTheBit) {
  expect_served(sweep(Injection::kOnce), "");
}

TEST_F(Simulated, EveryRequestFailingFromThereOnEndsTyped) {
  every_ = one_in(5);
  const Sweep swept = sweep(Injection::kFromThereOn);
  EXPECT_GT(swept.points, 100u);
  EXPECT_EQ(swept.gave_up, swept.runs);
}

TEST_F(Simulated, EveryRequestFailingUntilABitExactMoveGivesTheUndisturbedBits) {
  config_.recovery.floor = Guarantee::kBitExact;
  expect_served(sweep(Injection::kUntilAMove), "recompute");
}

TEST_F(Simulated, EveryRequestFailingUntilLayersMoveToASecondDeviceGivesTheUndisturbedBits) {
  every_ = one_in(3);
  devices_.emplace_back(at::kCUDA, 1);
  config_.model.dropout = 0.1;
  config_.recovery.floor = Guarantee::kBitExact;
  config_.plan.recompute = {0, 1};
  config_.plan.optimizer = Place::kHost;
  expect_served(sweep(Injection::kUntilAMove), "shift_layers");
}

TEST_F(Simulated, LayersThatMoveTakeTheirMomentsWithThem) {
  devices_.emplace_back(at::kCUDA, 1);
  Plan moved = config_.plan;
  moved.placement[1] = 1;
  EXPECT_EQ(reference({config_.plan, config_.plan, moved, moved, config_.plan}),
            reference({config_.plan, config_.plan, config_.plan, config_.plan, config_.plan}));
}

TEST_F(Simulated, EveryRequestFailingUntilASplitGivesTheBitsOfThatSchedule) {
  every_ = one_in(3);
  config_.plan.recompute = {0, 1};
  config_.plan.optimizer = config_.plan.parameters = config_.plan.gradients = Place::kHost;
  config_.plan.tiles = 2;
  config_.plan.head_chunks = 2;
  expect_served(sweep(Injection::kUntilAMove), "split_micro_batch");
}

TEST_F(Simulated, EveryDriverCallFailingOnceIsServedToTheBit) {
  config_.model = small_gpt2(2, 64, 2, 64);
  const Sweep swept = sweep(Injection::kDriverOnce);
  EXPECT_GT(swept.points, 0u);
  EXPECT_EQ(swept.gave_up, 0u);
}

TEST_F(Simulated, EveryDriverCallFailingFromThereOnIsServedOrEndsTyped) {
  config_.model = small_gpt2(2, 64, 2, 64);
  const Sweep swept = sweep(Injection::kDriverFromThereOn);
  EXPECT_GT(swept.points, 0u);
}

TEST_F(Simulated, SmallerLimitsAreSurvivedByPlansUntilNoneIsLeft) {
  config_.model = small_gpt2(2, 64, 2, 64);
  config_.train.batch = 8;
  config_.plan = {.micro_batch = 8, .evaluation_batch = 8};
  for (const size_t devices : {1, 2}) {
    devices_.assign(1, at::Device(at::kCUDA, 0));
    if (devices == 2) devices_.emplace_back(at::kCUDA, 1);
    references_.clear();
    const Outcome undisturbed = reference({config_.plan, config_.plan, config_.plan});
    std::string actions;
    bool ended = false;
    for (uint64_t limit = 12 * kMiB; limit > 0 && !ended; limit -= kMiB / 2) {
      core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL), core_.table()->empty_cache(1, SPILLWAY_EVERY_POOL);
      set_limits(limit);
      Ran ran;
      try {
        ran = run(Injection::kNone, 0, 3);
      } catch (const c10::OutOfMemoryError&) {
        ended = true;  // the parameters alone are too much
      }
      set_limits(0);
      ended |= ran.last == StepOutcome::kGaveUp;
      actions += ran.actions;
      if (ended) continue;
      EXPECT_EQ(ran.outcome, reference(ran.plans)) << limit << ": " << ran.actions;
      if (ran.plans.back().micro_batch == 8 && ran.plans.back().head_chunks == 1) {
        EXPECT_EQ(ran.outcome, undisturbed) << limit << ": " << ran.actions;
      }
    }
    EXPECT_TRUE(ended);
    EXPECT_THAT(actions, testing::HasSubstr("recompute"));
    EXPECT_THAT(actions, testing::HasSubstr("split_micro_batch"));
    // Of so small a model the states are little more than the slots for their tiles.
    EXPECT_THAT(actions, testing::HasSubstr(devices == 2 ? "shift_layers" : "optimizer_to_host"));
  }
  EXPECT_EQ(violations(), "");
}

// What it chooses fits, and choosing leaves no trace in the results.
TEST_F(Simulated, AnAutomaticPlanMeetsNoFailureAndGivesTheBitsOfThatPlan) {
  config_.model = small_gpt2(4, 128, 4, 64, 0.1);
  config_.train = {.steps = 2, .batch = 16, .warmup = 1};
  config_.plan = {.micro_batch = 16, .evaluation_batch = 16};
  config_.data.corpus = scratch_.corpus();
  const TrainOptions quiet{.resume = "", .stop = nullptr, .quiet = true};
  const uint64_t plain = estimate(config_.shape(), config_.plan, {}).device_peak_bytes[0];
  std::set<std::string> chosen;
  int split = 0;
  for (const uint64_t percent : {115, 75, 60, 45}) {
    config_.automatic_plan = true;
    config_.run.out = scratch_.file("automatic");
    config_.run.limit_bytes = kPlannerPages + plain * percent / 100;
    spillway_memory before{}, after{};
    for (int device = 0; device < 2; ++device) core_.table()->empty_cache(device, SPILLWAY_EVERY_POOL);
    core_.query(0, &before);
    const Results automatic = train(config_, quiet);
    core_.query(0, &after);
    ASSERT_EQ(automatic.exit_code, kExitDone) << automatic.verdict;
    EXPECT_EQ(after.failures, before.failures) << percent << "%: " << to_string(automatic.plan);
    EXPECT_TRUE(automatic.records.empty());
    chosen.insert(to_string(automatic.plan));
    const bool is_split =
        automatic.plan.micro_batch != config_.plan.micro_batch || automatic.plan.head_chunks > 1;
    split += is_split;
    EXPECT_EQ(automatic.guarantee_held, is_split ? Guarantee::kNumericallyEqual : Guarantee::kBitExact);
    set_limits(0);
    config_.automatic_plan = false;
    config_.run.limit_bytes = 0;
    Config given = config_;
    given.plan = automatic.plan;
    const Results same = train(given, quiet);
    EXPECT_EQ(same.weights_hash, automatic.weights_hash) << percent << "%: " << to_string(automatic.plan);
  }
  EXPECT_EQ(chosen.size(), 4u) << "each limit has a plan of its own";
  EXPECT_GT(split, 0);
  EXPECT_LT(split, 4);
}

TEST_F(Simulated, AnAutomaticPlanHasABudgetOfTheHost) {
  config_.automatic_plan = true;
  const uint64_t host = survey(config_, {}, devices_, core_).machine.host_bytes;
  EXPECT_GT(host, 0u);
  EXPECT_LT(host, uint64_t(::sysconf(_SC_PHYS_PAGES)) * uint64_t(::sysconf(_SC_PAGESIZE)));
}

TEST_F(Simulated, AnAutomaticMicroBatchIsTheLargestThatMeetsNoFailure) {
  config_.model = small_gpt2(4, 128, 4, 64);
  config_.train = {.steps = 2, .batch = 16, .warmup = 1};
  config_.plan = {.micro_batch = 16, .evaluation_batch = 1};
  config_.data.corpus = scratch_.corpus();
  config_.automatic_micro_batch = true;
  const TrainOptions quiet{.resume = "", .stop = nullptr, .quiet = true};
  const auto needed = [&](uint32_t micro_batch) {
    const Plan plan{.micro_batch = micro_batch, .evaluation_batch = 1};
    return estimate(config_.shape(), plan, {.workspace_bytes = at::cuda::getChosenWorkspaceSize()})
        .device_peak_bytes[0];
  };
  config_.run.out = scratch_.file("largest");
  config_.run.limit_bytes = kPlannerPages + (needed(4) + needed(6)) / 2;
  core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
  const Results found = train(config_, quiet);
  EXPECT_EQ(found.exit_code, kExitDone) << found.verdict;
  EXPECT_TRUE(found.records.empty());
  EXPECT_EQ(found.plan.micro_batch, 4u);
  EXPECT_EQ(found.guarantee_held, Guarantee::kNumericallyEqual) << "against the whole batch at once";
  config_.automatic_micro_batch = false;
  config_.plan = found.plan;
  config_.run.out = scratch_.file("given");
  EXPECT_EQ(train(config_, quiet).weights_hash, found.weights_hash);
}

TEST_F(Simulated, ARunWithNoPlanLeftEndsTypedWithACheckpointThatGoesOn) {
  config_.model = small_gpt2(2, 64, 4, 512);
  config_.train.batch = 8;
  config_.plan = {.micro_batch = 8, .evaluation_batch = 4};
  config_.data.corpus = scratch_.corpus();
  config_.run.out = scratch_.file("run");
  config_.run.limit_bytes = 5 * kMiB;
  core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
  const TrainOptions quiet{.resume = "", .stop = nullptr, .quiet = true};
  const Results starved = train(config_, quiet);
  EXPECT_EQ(starved.exit_code, kExitOutOfMemory);
  ASSERT_THAT(starved.verdict, testing::HasSubstr("no plan is left"));
  EXPECT_EQ(starved.records.back().action, "give_up");
  ASSERT_TRUE(std::filesystem::exists(starved.checkpoint)) << starved.verdict;
  EXPECT_THAT(ScratchFolder::read(starved.report), testing::HasSubstr("give_up, out of memory in "));

  set_limits(0);
  config_.run.limit_bytes = 0;
  const Results resumed = train(config_, {.resume = scratch_.file("run"), .stop = nullptr, .quiet = true});
  EXPECT_EQ(resumed.exit_code, kExitDone) << resumed.verdict;
  config_.plan = starved.plan;
  config_.run.out = scratch_.file("whole");
  EXPECT_EQ(train(config_, quiet).weights_hash, resumed.weights_hash);
}

TEST_F(Simulated, AStepsPeaksAreItsOwnAndTheRunsAreAllOf) {
  config_.model = small_gpt2(2, 64, 2, 64);
  config_.train = {.steps = 6, .batch = 8, .warmup = 1};
  config_.plan = {.micro_batch = 8, .evaluation_batch = 1};
  Plan small = config_.plan;
  small.micro_batch = 1;
  config_.schedule[3] = small;
  config_.data.corpus = scratch_.corpus();
  config_.run.out = scratch_.file("run");
  core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
  const uint64_t before = live();
  const Results results = train(config_, {.resume = "", .stop = nullptr, .quiet = true});
  ASSERT_EQ(results.exit_code, kExitDone) << results.verdict;
  const auto json = nlohmann::json::parse(ScratchFolder::read(scratch_.file("run/report.json")));
  const auto peak = [&](size_t step) -> uint64_t {
    return json["points"].at(step)["devices"].at(0)["live_peak_bytes"];
  };
  // Where products are computed on the host there is no workspace for them.
  const uint64_t large = estimate(config_.shape(), config_.plan, {}).device_peak_bytes[0];
  EXPECT_NEAR(double(peak(1) - before), double(large), 0.05 * double(large));
  EXPECT_EQ(peak(2), peak(1));
  EXPECT_LT(peak(4), peak(1) / 2) << "the peak is the step's and not the run's";
  EXPECT_GE(results.memory.at(0).peak_live, peak(1)) << "the run's is not the last step's";
  EXPECT_GE(results.memory.at(0).peak_reserved, peak(1));
}

// The families that the tests above are not of.
class SimulatedFamily : public Simulated, public testing::WithParamInterface<Family> {
 protected:
  SimulatedFamily() {
    config_.model = small_model_of(GetParam(), 0.1);
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all_.insert(layer);
    every_ = one_in(11);  // each place is tried with GPT-2
  }
  std::set<uint32_t> all_;
};
INSTANTIATE_TEST_SUITE_P(Of, SimulatedFamily, testing::Values(Family::kLlama, Family::kT5),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(SimulatedFamily, GivesTheBitsOfTheCpu) {
  config_.model.dropout = 0;  // which the generators of the two draw in other orders
  const Outcome gpu = reference({config_.plan, config_.plan});
  devices_ = {at::Device(at::kCPU)};
  references_.clear();
  EXPECT_EQ(reference({config_.plan, config_.plan}), gpu);
}

TEST_P(SimulatedFamily, LayersOnTwoDevicesAndRecomputedGiveTheSameBits) {
  devices_.emplace_back(at::kCUDA, 1);
  Plan moved = config_.plan, odd = config_.plan;
  for (const uint32_t layer : all_) {
    if (layer >= all_.size() / 2) moved.placement[layer] = 1;
    if (layer % 2 == 1) odd.placement[layer] = 1;
  }
  Plan again = odd;
  again.recompute = all_;
  Plan parts = odd;
  parts.recompute_attention = all_;
  parts.recompute_mlp = {0};
  Plan segments = moved;
  segments.recompute = all_;
  segments.recompute_segment = 2;
  const std::vector<Plan> plain(6, config_.plan);
  EXPECT_EQ(reference({config_.plan, moved, odd, again, parts, segments}), reference(plain));
}

TEST_P(SimulatedFamily, EveryRequestFailingUntilABitExactMoveGivesTheUndisturbedBits) {
  config_.recovery.floor = Guarantee::kBitExact;
  config_.plan.parameters = config_.plan.gradients = Place::kHost;
  expect_served(sweep(Injection::kUntilAMove), "recompute");
}

TEST_P(SimulatedFamily, EveryRequestFailingUntilASplitGivesTheBitsOfThatSchedule) {
  config_.plan.recompute = all_;
  config_.plan.optimizer = config_.plan.parameters = config_.plan.gradients = Place::kHost;
  config_.plan.tiles = 2;
  config_.plan.head_chunks = 2;
  expect_served(sweep(Injection::kUntilAMove), "split_micro_batch");
}

// What the other tests do not train with.
class SimulatedNumerics : public Simulated, public testing::WithParamInterface<Numerics> {
 protected:
  SimulatedNumerics() {
    config_.model = small_gpt2(2, 40, 2, 8);  // matrices that are quantized and some that are not
    config_.train.numerics = GetParam();
    corpus_ = test_corpus(scratch_, config_.model);
    every_ = 101;
  }
};
INSTANTIATE_TEST_SUITE_P(Of, SimulatedNumerics,
                         testing::Values(Numerics{Precision::kTf32, OptimizerKind::kSgd},
                                         Numerics{Precision::kBf16Mixed, OptimizerKind::kAdafactor},
                                         Numerics{Precision::kFp16Mixed, OptimizerKind::kAdamW8bit},
                                         Numerics{Precision::kBf16, OptimizerKind::kAdamW8bit},
                                         Numerics{Precision::kInt8, OptimizerKind::kAdamW8bit}),
                         [](const auto& info) { return case_name(info.param); });

TEST_P(SimulatedNumerics, TheCommitMakesNoRequest) {
  expect_quiet_commits();
}

TEST_P(SimulatedNumerics, StatesElsewhereAndLayersOnTwoDevicesGiveTheSameBits) {
  devices_.emplace_back(at::kCUDA, 1);
  Plan host = config_.plan, moved = config_.plan, nvme = config_.plan, both = config_.plan;
  host.optimizer = Place::kHost;
  nvme.optimizer = both.optimizer = Place::kNvme;
  moved.placement[1] = both.placement[1] = 1;
  const std::vector<Plan> plain(8, config_.plan);
  EXPECT_EQ(reference({config_.plan, host, moved, nvme, nvme, both, host, config_.plan}), reference(plain));
  EXPECT_EQ(violations(), "");
}

TEST_P(SimulatedNumerics, RequestsFailingUntilABitExactMoveGiveTheUndisturbedBits) {
  config_.recovery.floor = Guarantee::kBitExact;
  expect_served(sweep(Injection::kUntilAMove), "");
}

// Others take what the card has at the training's first failure, and go when the ladder asks for plan moves.
class GrowingBack : public Simulated {
 protected:
  void SetUp() override {
    config_.model = small_gpt2(2, 64, 4, 512);
    config_.train = {.steps = 6, .batch = 8, .warmup = 1};
    config_.plan = {.micro_batch = 8, .evaluation_batch = 1};
    config_.recovery.floor = Guarantee::kBitExact;
    config_.recovery.grow_back_after = 2;
    config_.data.corpus = scratch_.corpus();
    config_.run.out = scratch_.file("run");
    const spillway_strategy leaves{.size = sizeof leaves,
                                   .name = "others_leave",
                                   .guarantee = SPILLWAY_BIT_EXACT,
                                   .needs = SPILLWAY_NEEDS_UNWINDING,
                                   .offer = [](void*, const spillway_oom*) { return others_leave(); },
                                   .relieve = nullptr,
                                   .context = nullptr};
    ASSERT_EQ(core_.register_strategy(&leaves, &leaves_), SPILLWAY_OK);
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
    ASSERT_EQ(core_.query(0, &memory_), true);
    others_ = memory_.free - 8 * kMiB;
    ASSERT_EQ(simulator().charge(0, "others", others_), CUDA_SUCCESS);
  }
  void TearDown() override {
    others_leave();
    core_.unregister_strategy(leaves_);
  }
  static spillway_offer others_leave() {
    if (others_ != 0) simulator().discharge(0, "others", std::exchange(others_, 0));
    return {0, 0};
  }
  Results trained() {
    Results results = train(config_, {.resume = "", .stop = nullptr, .quiet = true});
    EXPECT_EQ(results.exit_code, kExitDone) << results.verdict;
    EXPECT_EQ(results.records.size(), 1u);
    return results;
  }

  static inline uint64_t others_ = 0;
  spillway_strategy_id leaves_ = 0;
  spillway_memory memory_{};
};

TEST_F(GrowingBack, HappensWhenThereIsRoomAgain) {
  EXPECT_EQ(trained().plan, config_.plan);
}

TEST_F(GrowingBack, NeedsRoomOnTheSmallestDevice) {
  config_.run.devices = 2;
  core_.limit(1, 8 * kMiB);
  EXPECT_NE(trained().plan, config_.plan);
}

class TightStart : public Simulated {
 protected:
  Results train_to(const char* out, uint64_t limit) {
    config_.train.steps = 2;
    config_.data.corpus = scratch_.corpus();
    config_.run.devices = 1;  // else it would begin with the other one's memory
    config_.run.out = scratch_.file(out);
    config_.run.limit_bytes = limit;
    return train(config_, {.resume = "", .stop = nullptr, .quiet = true});
  }
  // Two steps with room, and two within the limit, which begin with `place` elsewhere: the same bits.
  void expect_at(Place there, Place Plan::* place, uint64_t limit) {
    const Results roomy = train_to("roomy", 0);
    EXPECT_EQ(roomy.plan.*place, Place::kDevice);
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
    if (there == Place::kNvme) simulator().fail_call(1, "cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
    const Results tight = train_to("tight", limit);
    simulator().fail_call(0, nullptr, 0, CUDA_SUCCESS);
    EXPECT_EQ(tight.exit_code, kExitDone) << tight.verdict;
    EXPECT_EQ(tight.plan.*place, there);
    EXPECT_EQ(tight.weights_hash, roomy.weights_hash);
  }
};

// 13 MiB for parameters and gradients, 13 for the moments.
TEST_F(TightStart, MomentsThatDoNotFitBeginOnTheHost) {
  config_.model = small_gpt2(2, 256, 4, 16);
  expect_at(Place::kHost, &Plan::optimizer, 24 * kMiB);
}

// 6 MiB for each of parameters and gradients, 12 for the moments.
TEST_F(TightStart, LayersThatDoNotFitBeginOnTheHost) {
  config_.model = small_gpt2(8, 128, 4, 16);
  expect_at(Place::kHost, &Plan::gradients, 10 * kMiB);
}

// 13 MiB for parameters and gradients, and 2 MiB a slot.
TEST_F(TightStart, BeginsWithFewerSlotsBeforeMoreIsElsewhere) {
  config_.model = small_gpt2(2, 256, 4, 16);
  config_.plan.optimizer = Place::kHost;
  config_.plan.just_in_time = true;
  config_.plan.update_slots = 20;
  const Results roomy = train_to("roomy", 0);
  EXPECT_EQ(roomy.plan, normalised(config_.plan));
  core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
  const Results tight = train_to("tight", 24 * kMiB);
  EXPECT_EQ(tight.exit_code, kExitDone) << tight.verdict;
  EXPECT_EQ(tight.plan.update_slots, kLeastUpdateSlots);
  EXPECT_EQ(tight.plan.gradients, Place::kDevice);
  EXPECT_EQ(tight.weights_hash, roomy.weights_hash);
}

TEST_F(TightStart, WhereTheHostHasNoRoomEitherTheyBeginOnADisk) {
  config_.model = small_gpt2(2, 256, 4, 16);
  config_.run.nvme_least_bytes = 1;
  expect_at(Place::kNvme, &Plan::optimizer, 24 * kMiB);
}

}  // namespace
}  // namespace spillway::trainer
