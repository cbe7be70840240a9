// The real training step under injected failures of every allocation that it makes, on the CPU: what it
// computes is bitwise what an undisturbed run computes, or a run that is given the same plans.
#include "tests/trainer/recovery/recovery_fixture.h"

namespace spillway::trainer {
namespace {

TEST_F(Recovery, RecomputeGivesTheSameBitsAlsoWithDropout) {
  Plan all = config_.plan, half = config_.plan;
  all.recompute = {0, 1}, half.recompute = {1};
  const Outcome plain = scheduled({config_.plan, config_.plan});
  EXPECT_EQ(scheduled({all, all}), plain);
  EXPECT_EQ(scheduled({half, all}), plain);
  config_.model.dropout = 0;
  EXPECT_NE(scheduled({config_.plan, config_.plan}), plain) << "dropout acts";
}

TEST_F(Recovery, MomentsOnTheHostGiveTheSameBits) {
  Plan host = config_.plan;
  host.optimizer = Place::kHost;
  const Outcome plain = scheduled({config_.plan, config_.plan, config_.plan});
  EXPECT_EQ(scheduled({host, host, host}), plain);
  EXPECT_EQ(scheduled({config_.plan, host, config_.plan}), plain);
}

TEST_F(Recovery, ASplitIsTheSameMathematics) {
  config_.model.dropout = 0;
  Plan split = config_.plan;
  split.micro_batch = 1;
  const Outcome plain = scheduled({config_.plan, config_.plan}), other = scheduled({split, split});
  EXPECT_NEAR(plain.losses[1], other.losses[1], 1e-5);
  EXPECT_NEAR(plain.norms[1], other.norms[1], 1e-4);
  Plan uneven = config_.plan;
  uneven.micro_batch = 3;  // 3 + 1: the mean is over tokens, not over micro-batches
  EXPECT_NEAR(plain.losses[0], scheduled({uneven}).losses[0], 1e-5);
  EXPECT_NEAR(plain.norms[0], scheduled({uneven}).norms[0], 1e-4);
}

TEST_F(Recovery, EveryRequestFailingOnceGivesTheBitsOfItsPlans) {
  config_.plan.micro_batch = 2;
  const Sweep swept = sweep(false);
  expect_served(swept, "recompute");
  for (const char* phase : {"forward", "backward", "optimizer"})
    EXPECT_THAT(swept.phases, testing::HasSubstr(phase));
}

// Below, samples of the same step's requests: each of them fails above, and in tools/soak here too.
TEST_F(Recovery, EveryRequestFailingOnceWhenOnlyAHeadInChunksIsLeft) {
  every_ = one_in(3);
  config_.train.batch = 2;
  config_.plan = {.micro_batch = 1, .evaluation_batch = 1, .recompute = {0, 1}, .optimizer = Place::kHost};
  expect_served(sweep(false), "chunk_head");
}

TEST_F(Recovery, EveryRequestFailingOnceWhenOnlyASplitIsLeft) {
  every_ = one_in(3);
  config_.plan.recompute = {0, 1};
  config_.plan.optimizer = Place::kHost;
  config_.plan.head_chunks = 2;
  expect_served(sweep(false), "split_micro_batch");
}

TEST_F(Recovery, EveryRequestFailingOnceWhenNoMoveIsLeft) {
  every_ = one_in(3);
  config_.train.batch = 2;
  config_.plan = {.micro_batch = 1, .evaluation_batch = 1, .recompute = {0, 1}, .optimizer = Place::kHost};
  config_.plan.head_chunks = 3;
  expect_served(sweep(false), "try_again");  // unwinding freed memory: one plain try is allowed
}

TEST_F(Recovery, EveryRequestFailingOnceWhereLayersKeepTheirActivationsOnTheHost) {
  config_.train.offload_least_bytes = 1;
  config_.plan.offload = {0};
  config_.train.batch = 2;
  expect_served(sweep(false), "split_micro_batch");
}

TEST_F(Recovery, EveryRequestFailingFromThereOnEndsTyped) {
  every_ = one_in(5);
  const Sweep swept = sweep(true);
  EXPECT_GT(swept.requests, 200u);
  EXPECT_EQ(swept.gave_up, swept.runs);
}

TEST_F(Recovery, TheCommitAllocatesNothing) {
  expect_quiet_commits();
}

TEST_F(Recovery, TheLedgerTakesEachMicroBatchOnce) {
  Fixture run(config_, corpus_);
  run.program.save_step();
  Parameters& parameters = run.program.parameters();
  EXPECT_FALSE(run.program.run_micro_batch(0, config_.plan));
  const at::Tensor once = parameters.gradient(0).clone();
  for (size_t i = 0; i < parameters.size(); ++i)
    EXPECT_EQ(parameters.accumulated(i), 1u) << parameters.name(i);
  EXPECT_FALSE(run.program.run_micro_batch(0, config_.plan)) << "the same micro-batch once more";
  EXPECT_TRUE(at::equal(parameters.gradient(0), once)) << "is not added again";
  EXPECT_THROW(run.program.commit(), std::logic_error) << "a micro-batch is missing";
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_FALSE(parameters.value(i).grad().defined());
}

TEST_F(Recovery, AnEvaluationThatFailsIsSplitAndGivesItsLoss) {
  config_.recovery.floor = Guarantee::kNumericallyEqual;
  config_.plan = {.micro_batch = 1, .evaluation_batch = 4, .recompute = {0, 1}, .optimizer = Place::kHost};
  const auto evaluate = [](Fixture& run) {
    run.program.begin_evaluation();
    const auto outcome = run.step.run_evaluation(
        0,
        [](void* program, const Plan& plan) { return static_cast<TrainingStep*>(program)->evaluate(plan); },
        &run.program);
    run.program.end_evaluation();
    EXPECT_EQ(outcome, StepOutcome::kDone);
    return run.program.evaluation_loss();
  };
  Fixture calm(config_, corpus_);
  allocator_.arm(&calm.program, 0, false);
  const double loss = evaluate(calm);
  const uint64_t requests = allocator_.requests;
  for (uint64_t n = 1; n <= requests; ++n) {
    Fixture run(config_, corpus_);
    allocator_.arm(&run.program, n, false);
    EXPECT_NEAR(evaluate(run), loss, 1e-5);
    EXPECT_EQ(allocator_.fired, 1u);
    EXPECT_EQ(run.step.plan().evaluation_batch, 2u);
    EXPECT_EQ(run.step.guarantee_held(), Guarantee::kBitExact) << "training is untouched";
  }
}

// The families that the tests above are not of.
class RecoveryOfFamily : public Recovery, public testing::WithParamInterface<Family> {
 protected:
  RecoveryOfFamily() {
    config_.model = small_model_of(GetParam(), 0.1);
    corpus_ = test_corpus(scratch_, config_.model);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, RecoveryOfFamily, testing::Values(Family::kLlama, Family::kT5),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(RecoveryOfFamily, RecomputeAndMomentsOnTheHostGiveTheSameBits) {
  const Outcome plain = scheduled({config_.plan, config_.plan, config_.plan});
  Plan all = config_.plan, last = config_.plan, host = config_.plan;
  for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all.recompute.insert(layer);
  last.recompute = {config_.model.all_layers() - 1};
  host.optimizer = Place::kHost;
  EXPECT_EQ(scheduled({all, all, all}), plain);
  EXPECT_EQ(scheduled({last, host, all}), plain);
  config_.model.dropout = 0;
  EXPECT_NE(scheduled({config_.plan, config_.plan, config_.plan}), plain) << "dropout acts";
}

TEST_P(RecoveryOfFamily, ASplitIsTheSameMathematics) {
  config_.model.dropout = 0;
  Plan split = config_.plan;
  split.micro_batch = 1;
  const Outcome plain = scheduled({config_.plan, config_.plan}), other = scheduled({split, split});
  EXPECT_NEAR(plain.losses[1], other.losses[1], 1e-5);
  EXPECT_NEAR(plain.norms[1], other.norms[1], 1e-4 * plain.norms[1]);
}

// A step of T5 has most requests.
TEST_P(RecoveryOfFamily, EveryRequestFailingOnceGivesTheBitsOfItsPlans) {
  every_ = one_in(GetParam() == Family::kT5 ? 17 : 5);
  expect_served(sweep(false), "recompute");
}

class RecoveryOfEachFamily : public RecoveryOfFamily {};
INSTANTIATE_TEST_SUITE_P(Of, RecoveryOfEachFamily, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(RecoveryOfEachFamily, EveryWayOfRecomputingGivesTheSameBitsAlsoWithDropout) {
  config_.model.layers = 5;
  if (config_.model.has_decoder()) config_.model.decoder_layers = 4;
  std::set<uint32_t> all;
  for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all.insert(layer);
  const Plan kept = config_.plan;
  const auto with = [&](Plan plan) {
    plan.micro_batch = kept.micro_batch;
    return plan;
  };
  const Outcome plain = scheduled({kept, kept});
  for (const Plan& plan :
       {Plan{.recompute_attention = all}, Plan{.recompute_mlp = all},
        Plan{.recompute_attention = all, .recompute_mlp = all},
        Plan{.recompute = {0, 3}, .recompute_attention = {1}, .recompute_mlp = {2, 4}},
        Plan{.recompute = all, .recompute_segment = 2}, Plan{.recompute = all, .recompute_segment = 5}})
    EXPECT_EQ(scheduled({with(plan), with(plan)}), plain) << to_string(plan);
}

TEST_P(RecoveryOfEachFamily, AHeadInChunksIsTheSameMathematics) {
  Plan chunked = config_.plan;
  chunked.head_chunks = 3;
  const Outcome plain = scheduled({config_.plan, config_.plan}), other = scheduled({chunked, chunked});
  EXPECT_NEAR(plain.losses[1], other.losses[1], 1e-5);
  EXPECT_NEAR(plain.norms[1], other.norms[1], 1e-4 * plain.norms[1]);
  Plan again = chunked;
  again.recompute = {0, 1};
  EXPECT_EQ(scheduled({again, chunked}), other);
}

TEST_F(Recovery, AnotherErrorPassesThrough) {
  Fixture run(config_, corpus_);
  run.program.save_step();
  run.program.parameters().value(1).set_data(at::zeros({3, 3}));  // shapes that do not fit
  EXPECT_THROW(run.program.run_micro_batch(0, config_.plan), c10::Error);
}

}  // namespace
}  // namespace spillway::trainer
