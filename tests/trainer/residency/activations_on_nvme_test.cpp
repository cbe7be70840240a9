// What layers keep for their backward on a disk: the bits of a training that keeps it on the card, on a disk
// that fails too, and what the card, the host and the disk have of it.
#include <sys/resource.h>

#include <csignal>

#include "tests/trainer/residency/failing_io.h"
#include "tests/trainer/residency/streamed_training.h"
#include "trainer/plan/schedule.h"
#include "trainer/residency/activations/activation_pass.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Two more layers than there are buffers of the host, and the last one, which stays on its card.
constexpr uint32_t kLayers = 7;
static_assert(kLayers == kLayerBuffers + 3);

class ActivationsOnNvme : public StreamedTraining {
 protected:
  ActivationsOnNvme() : StreamedTraining({.layers = kLayers}) { config_.train.offload_least_bytes = 1; }
  Plan on_disk(const std::set<uint32_t>& layers) const {
    Plan plan = config_.plan;
    plan.offload = layers, plan.offload_to = Place::kNvme;
    return plan;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Of, ActivationsOnNvme,
    testing::Values(Streams{Family::kGpt2, {Precision::kFp16Mixed, OptimizerKind::kAdamW}},
                    Streams{Family::kLlama, {Precision::kBf16Mixed, OptimizerKind::kAdamW8bit}},
                    Streams{Family::kT5, {Precision::kFloat32, OptimizerKind::kAdafactor}}),
    case_of_streams);

TEST_P(ActivationsOnNvme, GiveTheBitsOfAPlainRun) {
  const FailingIo io;  // counts
  const Outcome plain = under(config_.plan);
  if (GetParam().family == Family::kGpt2) {
    EXPECT_THAT(plain.norms, Contains(testing::Truly([](double norm) { return !std::isfinite(norm); })));
  }
  EXPECT_EQ(FailingIo::writes, 0u);
  EXPECT_EQ(under(on_disk(all_)), plain);
  EXPECT_GT(FailingIo::reads, 0u);
}

TEST_P(ActivationsOnNvme, GiveTheSameBitsHoweverTheLayersAreComputedAndWhereElseTheyAre) {
  Plan again = on_disk(all_), segments = on_disk(all_), parts = on_disk(all_), streamed = on_disk(all_);
  again.recompute = all_;
  segments.recompute = all_, segments.recompute_segment = 2;
  parts.recompute_attention = {0, 2}, parts.recompute_mlp = {1};
  streamed.parameters = streamed.gradients = Place::kNvme;
  Plan host = on_disk(all_), ahead = on_disk({0, 3});
  host.offload_to = Place::kHost;
  const std::vector<Plan> plans{on_disk({0}), again,        host,     on_disk(all_), segments,
                                parts,        config_.plan, streamed, ahead};
  EXPECT_EQ(reference(plans), reference(std::vector<Plan>(plans.size(), config_.plan)));
}

TEST_P(ActivationsOnNvme, OfTwoCardsHaveAFileForEach) {
  devices_.emplace_back(at::kCUDA, 1);
  Plan halves = on_disk(all_), odd = on_disk(all_), peer = on_disk(all_);
  for (const uint32_t layer : all_) {
    if (layer >= all_.size() / 2) halves.placement[layer] = 1;
    if (layer % 2 == 1) odd.placement[layer] = 1;
  }
  odd.recompute = {0, 1};
  peer.offload_to = Place::kPeer, peer.peers = {{0, 1}};
  EXPECT_EQ(reference({halves, odd, peer, on_disk(all_), odd}),
            reference(std::vector<Plan>(5, config_.plan)));
}

// The disk fails when the training has begun.
class ActivationsOnNvmeFailures : public BesideThePlainRun {
 protected:
  ActivationsOnNvmeFailures() {
    use(small_gpt2(kLayers, 16, 2, 8, 0.1));
    config_.train = {.steps = 4, .batch = 4, .clip = 0.5, .warmup = 1, .offload_least_bytes = 1};
    config_.recovery.floor = Guarantee::kBitExact;
    plain_plan_ = config_.plan;
    config_.plan.offload = all_, config_.plan.offload_to = Place::kNvme;
  }
  const Outcome& plain() { return reference({plain_plan_, plain_plan_}); }

  Outcome under(const IoFault& fault) {
    Fixture fixture(config_, corpus_, devices_);
    FailingIo::arm(fault);
    Outcome outcome;
    for (uint64_t step = 0; step < 2; ++step) {
      EXPECT_EQ(fixture.step.run(step), StepOutcome::kDone);
      outcome.losses.push_back(fixture.program.loss());
      outcome.norms.push_back(fixture.program.gradient_norm());
    }
    outcome.weights = fixture.program.parameters().hash();
    remarks_ = fixture.program.remarks();
    records_ = fixture.step.records();
    return outcome;
  }
  uint64_t faults(const IoFault& fault, uint64_t every) {
    return at_each(fault, every, [this](const IoFault& of) {
      const Outcome outcome = under(of);
      EXPECT_EQ(outcome, plain()) << of.at;
      return FailingIo::fired > 0;
    });
  }

  const FailingIo failing_;
  Plan plain_plan_;
  std::vector<std::string> remarks_;
  std::vector<RecoveryRecord> records_;
};

TEST_F(ActivationsOnNvmeFailures, ADiskThatFailsOnceChangesNoBitAndNoPlan) {
  for (const bool writes : {false, true}) EXPECT_GT(faults({.writes = writes, .error = EIO}, 1), 5u);
  EXPECT_GT(faults({.kind = IoFault::Kind::kFlippedBit}, 1), 5u);
  EXPECT_THAT(records_, testing::IsEmpty());
  EXPECT_GT(faults({.writes = true, .persistent = true, .error = ENOSPC}, 3), 3u);
  under({.writes = true, .at = 1, .persistent = true, .error = ENOSPC});
  EXPECT_THAT(records_, testing::IsEmpty());
  EXPECT_THAT(remarks_, Contains(AllOf(HasSubstr("the layers' activations stay in memory"),
                                       HasSubstr("No space left on device"))));
}

TEST_F(ActivationsOnNvmeFailures, WhatIsLostIsComputedAgainAndTheHostHasItFromThenOn) {
  EXPECT_GT(faults({.persistent = true, .error = EIO}, 1), 5u);
  under({.at = 1, .persistent = true, .error = EIO});
  ASSERT_EQ(records_.size(), 1u);
  const auto says_why = AllOf(testing::ContainsRegex("the activations of layer [0-5] are lost: "),
                              HasSubstr("Input/output error"));
  EXPECT_THAT(records_[0].reason, says_why);
  EXPECT_EQ(records_[0].action, "try_again");
  EXPECT_EQ(records_[0].plan, config_.plan);
  EXPECT_THAT(remarks_, Contains(AllOf(HasSubstr("stays on the host"), says_why)));
}

TEST_F(ActivationsOnNvmeFailures, ADiskWithoutRoomLeavesThemOnTheHost) {
  plain();
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  bool had_some = false;
  for (const rlim_t bytes : {16 << 10, 64 << 10, 128 << 10, 192 << 10, 256 << 10}) {
    rlimit small = limit;
    small.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const Outcome outcome = under({});
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_EQ(outcome, plain()) << bytes;
    EXPECT_THAT(records_, testing::IsEmpty());
    const auto says = Contains(
        AllOf(HasSubstr("stays on the host"), HasSubstr("no room for the layers' activations on a disk: ")));
    if (testing::Matches(says)(remarks_)) had_some = had_some || FailingIo::writes > 0;
    if (bytes == 16 << 10) {
      EXPECT_THAT(remarks_, says);
    }
  }
  std::signal(SIGXFSZ, before);
  EXPECT_TRUE(had_some) << "the disk had room for some layers, and not for all";
}

TEST_F(ActivationsOnNvmeFailures, EveryRequestFailingOnceOrUntilAMoveGivesTheUndisturbedBits) {
  every_ = 13;
  expect_served(sweep(Injection::kOnce), "");
  every_ = 31;
  expect_served(sweep(Injection::kUntilAMove), "to_host");
}

TEST_F(ActivationsOnNvmeFailures, EveryDriverCallFailingOnceIsServedToTheBit) {
  use(small_gpt2(kLayers, 64, 2, 64));
  config_.plan.offload = all_;
  const Sweep swept = sweep(Injection::kDriverOnce);
  EXPECT_GT(swept.points, 0u);
  EXPECT_EQ(swept.gave_up, 0u);
}

TEST_F(ActivationsOnNvmeFailures, ATrainingTakesThemToADiskByAMove) {
  config_.plan = plain_plan_;
  Machine machine;
  machine.nvme_least_bytes = 0;
  const std::vector<Move> moves = neighbours(config_.plan, config_.shape(), machine, Guarantee::kBitExact);
  const auto move =
      std::ranges::find(moves, MoveKind::kActivationsToNvme, [](const Move& each) { return each.kind; });
  ASSERT_NE(move, moves.end());
  EXPECT_EQ(move->to.offload_to, Place::kNvme);
  EXPECT_EQ(reference({plain_plan_, move->to}), plain());
}

// What the card, the host and the disk have, and what is read and written.
class ActivationsOnNvmeInSizes : public Simulated {
 protected:
  static constexpr uint64_t kSteps = 3;
  struct Needs {
    uint64_t device = 0, host = 0, reads = 0, writes = 0;
  };

  ActivationsOnNvmeInSizes() {
    config_.train.batch = 8;
    config_.train.offload_least_bytes = 4096;
  }
  // Reads and writes are of blocks of a MiB, of a micro-batch.
  Needs measured(uint32_t layers) {
    config_.model = small_gpt2(layers, 64, 2, 64);
    corpus_ = test_corpus(scratch_, config_.model);
    config_.plan = {.micro_batch = 4, .evaluation_batch = 1};
    for (uint32_t layer = 0; layer < layers; ++layer) config_.plan.offload.insert(layer);
    config_.plan.offload_to = Place::kNvme;
    core_.table()->empty_cache(0, SPILLWAY_EVERY_POOL);
    const uint64_t before = live();
    const FailingIo io;
    Fixture run(config_, corpus_, devices_);
    const uint64_t locked = PageLocked::bytes().now;
    PageLocked::begin_most();
    for (uint64_t step = 0; step < kSteps; ++step) {
      core_.reset_peaks(0);
      EXPECT_EQ(run.step.run(step), StepOutcome::kDone);
    }
    EXPECT_EQ(run.program.activations().block_bytes(), 0u);
    spillway_memory memory{};
    core_.query(0, &memory);
    const uint64_t passes = 2 * kSteps;
    EXPECT_EQ(FailingIo::reads % passes + FailingIo::writes % passes, 0u);
    return {memory.peak_live - before, PageLocked::bytes().most - locked, FailingIo::reads / passes,
            FailingIo::writes / passes};
  }
  static uint64_t item(const Estimate& estimate, const std::string& name, bool nvme) {
    for (const EstimateItem& item : estimate.items)
      if (item.name == name && item.nvme == nvme) return item.bytes;
    return 0;
  }
};

TEST_F(ActivationsOnNvmeInSizes, TakeTheMemoryThatTheEstimateSays) {
  Machine machine;
  machine.nvme_least_bytes = 0;
  const Needs few = measured(kLayers), many = measured(2 * kLayers);
  const Estimate needed = estimate(config_.shape(), config_.plan, machine);
  EXPECT_NEAR(double(many.device), double(needed.device_peak_bytes[0]), 0.02 * double(many.device));
  EXPECT_EQ(many.host, item(needed, "buffers for activations", false));
  EXPECT_EQ(few.host, many.host) << "of four layers, however many there are";
  machine.nvme_least_bytes = kLeastOnNvme << 10;
  const Estimate small = estimate(config_.shape(), config_.plan, machine);
  EXPECT_EQ(small.nvme_bytes, 0u) << "what is too small for a disk";
  EXPECT_NEAR(double(item(needed, "activations", true)), double(item(small, "activations", false)),
              0.01 * double(small.host_bytes));
}

TEST_F(ActivationsOnNvmeInSizes, WhatTheBackwardBeginsWithIsNotWrittenAndWhatIsInABufferIsNotRead) {
  const Needs few = measured(kLayers), many = measured(2 * kLayers);
  const uint64_t blocks = (many.writes - few.writes) / kLayers;
  EXPECT_EQ(few.writes, (kLayers - 1 - kLayersInBuffers) * blocks) << "the last layer stays on its card";
  EXPECT_EQ(few.reads, (kLayers - 1 - kLayerBuffers) * blocks);
  EXPECT_EQ(many.reads, (2 * kLayers - 1 - kLayerBuffers) * blocks);
}

}  // namespace
}  // namespace spillway::trainer
