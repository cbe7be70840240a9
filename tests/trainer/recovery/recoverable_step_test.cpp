// The recoverable step's contract, on a program that only keeps a diary.
#include "trainer/step/recoverable_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/small_models.h"

namespace spillway::trainer {
namespace {

using testing::ElementsAre;

const Shape kShape{.model = small_gpt2(4, 64, 4, 32), .batch = 4};

// Fails at chosen calls (counted over run_micro_batch and prepare_commit) and, if told so, at adopting.
class Diary : public StepProgram {
 public:
  std::set<int> failures;  // numbers of calls, from 1
  bool always = false, refuses = false;
  std::optional<MoveKind> chosen;
  bool step_can_restart = true;
  std::vector<std::string> lines;
  int calls = 0, commits = 0;
  std::optional<Plan> offered_from;
  size_t refused_moves = 0;

  void begin(const StepKey& key) override { lines.push_back("begin " + std::to_string(key.attempt)); }
  void save_step() override { lines.push_back("save"); }
  void restore_step() override { lines.push_back("restore"); }
  void save_micro_batch(uint32_t) override {}
  void restore_micro_batch(uint32_t i) override { lines.push_back("restore " + std::to_string(i)); }
  uint32_t micro_batches(const Plan& plan) const override {
    return (4 + plan.micro_batch - 1) / plan.micro_batch;
  }
  std::optional<Failure> run_micro_batch(uint32_t i, const Plan&) override {
    lines.push_back("run " + std::to_string(i));
    return answer("forward");
  }
  std::optional<Failure> prepare_commit() override { return answer("optimizer"); }
  void commit() override { ++commits, lines.push_back("commit"); }
  std::optional<Failure> adopt(const Plan&, const Plan&) override {
    return refuses ? std::optional(Failure{"no room to move", "plan", {}, 0}) : std::nullopt;
  }
  void offer_moves(const Plan& plan, const std::vector<Plan>& refused) override {
    offered_from = plan;
    refused_moves = refused.size();
  }
  void offer_no_move() override { offered_from.reset(); }
  void release_caches() override { lines.push_back("release"); }
  void plan_changed(uint64_t, const Plan&, const Plan&, uint64_t, const std::string& why) override {
    lines.push_back(why);
  }

 private:
  std::optional<Failure> answer(const char* phase) {
    if (!always && !failures.count(++calls)) return std::nullopt;
    return Failure{.text = "injected",
                   .phase = phase,
                   .chosen = chosen,
                   .incident = 9,
                   .step_can_restart = step_can_restart};
  }
};

TEST(RecoverableStep, ABitExactMoveRedoesOnlyTheFailedMicroBatch) {
  Diary diary;
  diary.failures = {2};
  diary.chosen = MoveKind::kRecompute;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 2}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  EXPECT_THAT(diary.lines, ElementsAre("begin 0", "save", "run 0", "run 1", "recompute", "begin 1",
                                       "restore 1", "run 1", "commit"));
  EXPECT_EQ(step.guarantee_held(), Guarantee::kBitExact);
  ASSERT_EQ(step.records().size(), 1u);
  EXPECT_EQ(step.records()[0].incident, 9u);
}

TEST(RecoverableStep, ASplitUndoesTheWholeStep) {
  Diary diary;
  diary.failures = {2};
  diary.chosen = MoveKind::kSplitMicroBatch;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 2}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  EXPECT_THAT(diary.lines, ElementsAre("begin 0", "save", "run 0", "run 1", "split_micro_batch", "begin 1",
                                       "restore", "run 0", "run 1", "run 2", "run 3", "commit"));
  EXPECT_EQ(step.guarantee_held(), Guarantee::kNumericallyEqual);
}

TEST(RecoverableStep, AStepThatOtherRanksHavePartOfIsNotBegunAnew) {
  Diary diary;
  diary.failures = {2};
  diary.chosen = MoveKind::kSplitMicroBatch;
  diary.step_can_restart = false;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  ASSERT_EQ(step.records().size(), 1u);
  EXPECT_EQ(step.records()[0].guarantee, Guarantee::kBitExact) << step.records()[0].action;
  EXPECT_THAT(diary.lines, testing::Not(testing::Contains("restore")));
}

TEST(RecoverableStep, AFailureBeforeTheCommitRedoesNoMicroBatch) {
  Diary diary;
  diary.failures = {2};
  diary.chosen = MoveKind::kOptimizerToHost;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  EXPECT_THAT(diary.lines, ElementsAre("begin 0", "save", "run 0", "optimizer_to_host", "begin 1", "commit"));
}

TEST(RecoverableStep, WithoutALadderTheStrongestGuaranteeComesFirst) {
  Diary diary;
  diary.failures = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  Plan before{.micro_batch = 4};
  for (const RecoveryRecord& record : step.records()) {
    if (record.guarantee != Guarantee::kBitExact) {
      for (const Move& move : neighbours(before, kShape, {}, Guarantee::kBitExact))
        EXPECT_EQ(move.bytes_freed, 0u) << move.name << " before " << record.action;
    }
    before = record.plan;
  }
  EXPECT_EQ(step.guarantee_held(), Guarantee::kNumericallyEqual);
}

TEST(RecoverableStep, EndsInATypedOutcomeWhenNothingHelps) {
  Diary diary;
  diary.always = true;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kGaveUp);
  EXPECT_EQ(diary.commits, 0);
  EXPECT_EQ(diary.lines.back(), "restore");
  EXPECT_EQ(step.records().back().action, "give_up");
  EXPECT_EQ(std::count(diary.lines.begin(), diary.lines.end(), "release"), 1) << "one plain try, not more";
  EXPECT_EQ(step.last_failure(), "injected");
}

TEST(RecoverableStep, AttemptsAreBounded) {
  Diary diary;
  diary.always = true;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {.attempts = 2});
  EXPECT_EQ(step.run(0), StepOutcome::kGaveUp);
  EXPECT_EQ(step.records().size(), 2u);
}

TEST(RecoverableStep, TheFloorIsNeverCrossed) {
  Diary diary;
  diary.always = true;
  diary.chosen = MoveKind::kSplitMicroBatch;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {.floor = Guarantee::kBitExact});
  EXPECT_EQ(step.run(0), StepOutcome::kGaveUp);
  EXPECT_EQ(step.plan().micro_batch, 4u);
}

TEST(RecoverableStep, AMoveThatFindsNoRoomIsNotTriedTwiceInAStep) {
  Diary diary;
  diary.always = diary.refuses = true;
  RecoverableStep step(diary, kShape, {.devices = 2}, {.micro_batch = 4}, {});
  EXPECT_EQ(step.run(0), StepOutcome::kGaveUp);
  EXPECT_EQ(step.plan(), (Plan{.micro_batch = 4}));
  EXPECT_EQ(step.records().size(), 2u) << "try_again, give_up";
  EXPECT_EQ(diary.offered_from, step.plan());
  EXPECT_EQ(diary.refused_moves,
            neighbours(step.plan(), kShape, {.devices = 2}, Guarantee::kNumericallyEqual).size())
      << "a ladder must not choose one of them again: nobody would carry it out";
  diary.always = false;
  EXPECT_EQ(step.run(1), StepOutcome::kDone);
  EXPECT_EQ(diary.refused_moves, 0u) << "another step may have room";
}

TEST(RecoverableStep, GrowsBackWithHysteresis) {
  Diary diary;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {.grow_back_after = 2});
  const uint64_t plenty = 1ull << 40;
  uint64_t number = 0;
  const auto fail_next = [&] {
    diary.failures = {diary.calls + 1};
    diary.chosen = MoveKind::kSplitMicroBatch;
    EXPECT_EQ(step.run(number), StepOutcome::kDone);
    step.maybe_grow_back(number++, plenty);
  };
  const auto quiet_steps_until_grown = [&] {
    int steps = 0;
    while (step.plan().micro_batch == 2 && steps < 20) {
      EXPECT_EQ(step.run(number), StepOutcome::kDone);
      step.maybe_grow_back(number++, plenty);
      ++steps;
    }
    return steps;
  };
  fail_next();
  EXPECT_EQ(step.plan().micro_batch, 2u);
  EXPECT_EQ(quiet_steps_until_grown(), 1);  // the failed step itself ended well: it counts
  EXPECT_EQ(step.plan().micro_batch, 4u);
  fail_next();  // grown too early
  EXPECT_EQ(quiet_steps_until_grown(), 3) << "twice as long";
}

TEST(RecoverableStep, GrowsBackAsManyMovesAsItMade) {
  Diary diary;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {.grow_back_after = 1});
  diary.chosen = MoveKind::kSplitMicroBatch;
  diary.failures = {1, 2};
  EXPECT_EQ(step.run(0), StepOutcome::kDone);
  std::vector<uint32_t> sizes{step.plan().micro_batch};
  for (uint64_t number = 0; number < 4; ++number) {
    step.maybe_grow_back(number, 1ull << 40);
    sizes.push_back(step.plan().micro_batch);
    EXPECT_EQ(step.run(number + 1), StepOutcome::kDone);
  }
  EXPECT_THAT(sizes, ElementsAre(1, 2, 4, 4, 4));
}

TEST(RecoverableStep, DoesNotGrowBackBehindAScheduledPlan) {
  for (const uint32_t scheduled : {1u, 2u}) {  // 2: the plan that the move has made
    Diary diary;
    RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {.grow_back_after = 1});
    diary.chosen = MoveKind::kSplitMicroBatch;
    diary.failures = {1};
    EXPECT_EQ(step.run(0), StepOutcome::kDone);
    ASSERT_EQ(step.plan().micro_batch, 2u);
    std::string error;
    ASSERT_TRUE(step.follow(1, {.micro_batch = scheduled}, &error)) << error;
    for (uint64_t number = 1; number < 5; ++number) {
      EXPECT_EQ(step.run(number), StepOutcome::kDone);
      step.maybe_grow_back(number, 1ull << 40);
    }
    EXPECT_EQ(step.plan().micro_batch, scheduled);
  }
}

TEST(RecoverableStep, DoesNotGrowIntoALimitThatTheEstimateExceeds) {
  Diary diary;
  RecoverableStep step(diary, kShape, {}, {.micro_batch = 4}, {.grow_back_after = 1});
  diary.failures = {1};
  diary.chosen = MoveKind::kSplitMicroBatch;
  step.run(0);
  const uint64_t needed = estimate(kShape, {.micro_batch = 4}, {}).device_peak_bytes[0];
  step.maybe_grow_back(0, needed);
  EXPECT_EQ(step.plan().micro_batch, 2u) << "head-room is missing";
  step.maybe_grow_back(0, needed * 2);
  EXPECT_EQ(step.plan().micro_batch, 4u);
}

}  // namespace
}  // namespace spillway::trainer
