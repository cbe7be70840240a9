// Each optimizer and each precision under the promises that trainer/README.md makes: the same bits wherever
// the states lie, after a recovery, and from a checkpoint; and a commit that allocates nothing.
#include "tests/trainer/recovery/recovery_fixture.h"
#include "trainer/checkpoint/checkpoint.h"

namespace spillway::trainer {
namespace {

class RecoveryOf : public Recovery, public testing::WithParamInterface<Numerics> {
 protected:
  RecoveryOf() {
    // Matrices that are quantized and some that are not, of whole blocks and of others.
    config_.model = small_gpt2(2, 40, 2, 8, 0.1);
    config_.train.numerics = GetParam();
    config_.train.clip = 0.5;
    // The first step overflows, and the second does not.
    if (GetParam().precision == Precision::kFp16Mixed) config_.train.loss_scale = 0x1p18 + 0.1;
    corpus_ = test_corpus(scratch_, config_.model);
    every_ *= 17;
  }
};
INSTANTIATE_TEST_SUITE_P(Numerics, RecoveryOf,
                         testing::Values(Numerics{Precision::kFloat32, OptimizerKind::kAdam},
                                         Numerics{Precision::kFloat32, OptimizerKind::kSgd},
                                         Numerics{Precision::kFloat32, OptimizerKind::kAdafactor},
                                         Numerics{Precision::kFloat32, OptimizerKind::kAdamW8bit},
                                         Numerics{Precision::kBf16Mixed, OptimizerKind::kAdamW},
                                         Numerics{Precision::kFp16Mixed, OptimizerKind::kAdamW},
                                         Numerics{Precision::kFp16Mixed, OptimizerKind::kAdafactor},
                                         Numerics{Precision::kBf16, OptimizerKind::kAdamW},
                                         Numerics{Precision::kBf16, OptimizerKind::kAdamW8bit},
                                         Numerics{Precision::kInt8, OptimizerKind::kAdamW},
                                         Numerics{Precision::kInt8, OptimizerKind::kAdamW8bit},
                                         Numerics{Precision::kInt8, OptimizerKind::kAdafactor},
                                         Numerics{Precision::kBf16, OptimizerKind::kAdafactor}),
                         [](const auto& info) { return case_name(info.param); });

TEST_P(RecoveryOf, RecomputeAndStatesElsewhereGiveTheSameBits) {
  Plan all = config_.plan, host = config_.plan, nvme = config_.plan;
  all.recompute = {0, 1};
  host.optimizer = Place::kHost;
  nvme.optimizer = Place::kNvme;
  const std::vector<Plan> plain(8, config_.plan);
  EXPECT_EQ(scheduled({all, host, host, nvme, nvme, config_.plan, nvme, host}), scheduled(plain));
}

TEST_P(RecoveryOf, AHeadInChunksIsTheSameMathematics) {
  config_.model.dropout = 0;
  Plan chunked = config_.plan;
  chunked.head_chunks = 3;
  chunked.recompute_mlp = {0, 1};
  const std::vector<Plan> plain(4, config_.plan);
  const Outcome whole = scheduled(plain), other = scheduled({chunked, chunked, chunked, chunked});
  const bool in_halves = GetParam().precision != Precision::kFloat32;
  EXPECT_NE(whole, other) << "sums are ordered otherwise";
  for (size_t step = 0; step < plain.size(); ++step) {
    EXPECT_NEAR(whole.losses[step], other.losses[step], in_halves ? 1e-2 : 1e-5) << step;
    if (std::isfinite(whole.norms[step])) {
      EXPECT_NEAR(whole.norms[step], other.norms[step], (in_halves ? 2e-2 : 1e-4) * whole.norms[step])
          << step;
    }
  }
}

TEST_P(RecoveryOf, RequestsFailingOnceGiveTheBitsOfTheirPlans) {
  Fixture calm(config_, corpus_);
  for (uint64_t step = 0; step < kSteps; ++step) EXPECT_EQ(calm.step.run(step), StepOutcome::kDone);
  EXPECT_EQ(calm.program.loss_scale().state().skipped,
            GetParam().precision == Precision::kFp16Mixed ? 1u : 0u);
  const Sweep swept = sweep(false);
  EXPECT_GT(swept.requests, 200u);
  EXPECT_EQ(swept.gave_up, 0u);
}

TEST_P(RecoveryOf, TheCommitAllocatesNothing) {
  expect_quiet_commits();
}

TEST_P(RecoveryOf, ACheckpointGoesOnToTheBit) {
  const std::string path = scratch_.file("checkpoint");
  std::string error;
  Fixture whole(config_, corpus_);
  for (uint64_t step = 0; step < 5; ++step) {
    if (step == 3) {
      ASSERT_TRUE(save_checkpoint(path, config_, corpus_, whole.program, {config_.plan}, &error)) << error;
    }
    ASSERT_EQ(whole.step.run(step), StepOutcome::kDone);
  }
  const auto goes_on = [&](Place place) {
    config_.plan.optimizer = place;
    Fixture resumed(config_, corpus_);
    ASSERT_TRUE(load_checkpoint(path, config_, &resumed.program, &error)) << error;
    for (uint64_t step = 3; step < 5; ++step) {
      if (step == 4) {
        ASSERT_TRUE(save_checkpoint(path, config_, corpus_, resumed.program, {config_.plan}, &error))
            << error;
      }
      ASSERT_EQ(resumed.step.run(step), StepOutcome::kDone);
    }
    EXPECT_EQ(resumed.program.parameters().hash(), whole.program.parameters().hash());
    EXPECT_EQ(resumed.program.loss_scale().value(), whole.program.loss_scale().value());
  };
  goes_on(Place::kNvme);
  Fixture resumed(config_, corpus_);
  ASSERT_TRUE(load_checkpoint(path, config_, &resumed.program, &error)) << error;
  ASSERT_EQ(resumed.step.run(4), StepOutcome::kDone);
  EXPECT_EQ(resumed.program.parameters().hash(), whole.program.parameters().hash()) << "saved from the disk";
  config_.train.numerics.optimizer =
      GetParam().optimizer == OptimizerKind::kAdam ? OptimizerKind::kSgd : OptimizerKind::kAdam;
  EXPECT_FALSE(load_checkpoint(path, config_, &resumed.program, &error));
  EXPECT_THAT(error, testing::HasSubstr(std::string("by ") + name_of(GetParam().optimizer)));
}

// A forced overflow: the scale is far too large for float16.
TEST_F(Recovery, AnOverflowIsSkippedAndHalvesTheScale) {
  config_.train.numerics.precision = Precision::kFp16Mixed;
  config_.train.loss_scale = 0x1p22;
  config_.train.loss_scale_interval = 2;
  Fixture run(config_, corpus_);
  std::vector<double> scales;
  for (uint64_t step = 0; step < 8; ++step) {
    const uint64_t before = run.program.parameters().hash(),
                   skipped = run.program.loss_scale().state().skipped;
    ASSERT_EQ(run.step.run(step), StepOutcome::kDone);
    const bool overflowed = run.program.loss_scale().state().skipped > skipped;
    EXPECT_EQ(std::isfinite(run.program.gradient_norm()), !overflowed);
    EXPECT_EQ(run.program.parameters().hash() == before, overflowed) << step;
    scales.push_back(run.program.loss_scale().value());
  }
  EXPECT_GT(run.program.loss_scale().state().skipped, 0u);
  EXPECT_EQ(scales[0], 0x1p21);
  EXPECT_EQ(run.program.optimizer().updates() + run.program.loss_scale().state().skipped, 8u);
  EXPECT_NE(std::adjacent_find(scales.begin(), scales.end(), std::less<>()), scales.end()) << "it grows back";
}

}  // namespace
}  // namespace spillway::trainer
