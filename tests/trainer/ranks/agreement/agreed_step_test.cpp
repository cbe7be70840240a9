// Recoverable steps of several ranks, whose programs keep a diary alone: ranks as threads, without a store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <set>
#include <thread>

#include "tests/trainer/small_models.h"
#include "trainer/step/recoverable_step.h"

namespace spillway::trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Shape kAgreedShape{.model = small_gpt2(4, 64, 4, 32), .batch = 4};

// Where the ranks meet: each leaves something there, and reads what all have left.
class Meeting {
 public:
  explicit Meeting(uint32_t size) : words_(size), asks_(size), barrier_(size) {}
  std::vector<Word> exchange(const Word& mine) {
    words_[mine.rank] = mine;
    barrier_.arrive_and_wait();
    std::vector<Word> all = words_;
    barrier_.arrive_and_wait();
    return all;
  }
  bool vote(uint32_t rank, bool asks) {
    asks_[rank] = asks;
    barrier_.arrive_and_wait();
    const bool any = std::ranges::count(asks_, 1) > 0;
    barrier_.arrive_and_wait();
    return any;
  }

 private:
  std::vector<Word> words_;
  std::vector<int> asks_;
  std::barrier<> barrier_;
};

// Fails at chosen tries of a step, each of which is one micro-batch and a commit.
class RankDiary : public StepProgram, public RanksOfStep {
 public:
  RankDiary(Meeting& meeting, uint32_t rank, uint32_t stage)
      : meeting_(meeting), rank_(rank), stage_(stage) {}
  std::set<int> failures;         // numbers of tries, from 1
  std::set<std::string> refused;  // texts of plans for which there is no room
  bool only_splits = true, refuses_all = false, always = false, step_can_restart = false, evaluates = false;
  std::optional<MoveKind> chosen = MoveKind::kSplitMicroBatch;
  std::vector<std::string> lines;
  std::vector<uint32_t> attempts;
  int tries = 0, commits = 0;

  void begin(const StepKey& key) override { attempts.push_back(key.attempt); }
  void save_step() override { is_asked_ = has_voted_ = false; }
  void restore_step() override { lines.push_back("restore"), is_asked_ = has_voted_ = false; }
  void save_micro_batch(uint32_t) override {}
  void restore_micro_batch(uint32_t) override {}
  uint32_t micro_batches(const Plan&) const override { return 1; }
  std::optional<Failure> run_micro_batch(uint32_t, const Plan&) override {
    if (!always && !failures.contains(++tries)) return std::nullopt;
    return Failure{.text = "no room on " + std::to_string(rank_),
                   .phase = "backward",
                   .chosen = chosen,
                   .incident = 9,
                   .step_can_restart = step_can_restart};
  }
  std::optional<Failure> prepare_commit() override { return vote(false), std::nullopt; }
  void restore_evaluation() override { lines.push_back("restore"), is_asked_ = has_voted_ = false; }
  std::optional<Failure> evaluate(const Plan&) {
    if (!failures.contains(++tries)) return vote(false), std::nullopt;
    return Failure{
        .text = "no room", .phase = "evaluation", .chosen = chosen, .incident = 9, .can_be_repeated = false};
  }
  void commit() override { ++commits, lines.push_back("commit"); }
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override {
    const bool has_room = !only_splits || to.micro_batch != from.micro_batch;
    if (from == to || (has_room && !refuses_all && !refused.contains(to_string(to)))) return std::nullopt;
    return Failure{"no room to move", "plan", {}, 0};
  }
  void offer_moves(const Plan&, const std::vector<Plan>&) override {}
  void offer_no_move() override {}
  void release_caches() override {}
  void plan_changed(uint64_t, const Plan&, const Plan&, uint64_t, const std::string& why) override {
    lines.push_back(why);
  }
  RanksOfStep* ranks() override { return this; }

  uint32_t rank() const override { return rank_; }
  SharedWork shared_work() const override { return {stage_}; }
  bool undo_is_asked() const override { return is_asked_; }
  void ask_to_undo(bool) override { lines.push_back("ask"), vote(true); }
  Decision decide(const Word& mine, uint32_t attempts_allowed) override {
    return trainer::decide(meeting_.exchange(mine), attempts_allowed);
  }

 private:
  void vote(bool asks) {
    if (!std::exchange(has_voted_, true)) is_asked_ = meeting_.vote(rank_, asks);
  }

  Meeting& meeting_;
  const uint32_t rank_, stage_;
  bool is_asked_ = false, has_voted_ = false;
};

// Texts of the plans of all moves but the split.
std::set<std::string> other_moves() {
  std::set<std::string> plans;
  for (const Move& move :
       neighbours({.micro_batch = 4, .evaluation_batch = 4}, kAgreedShape, {}, Guarantee::kNumericallyEqual))
    if (move.kind != MoveKind::kSplitMicroBatch) plans.insert(to_string(move.to));
  return plans;
}

class AgreedStep : public testing::Test {
 protected:
  // One step on each of so many ranks, after `prepare(rank, diary)`.
  template <typename Prepare>
  void run(uint32_t size, uint32_t stage, const RecoveryOptions& options, const Prepare& prepare) {
    meeting_ = std::make_unique<Meeting>(size);
    for (uint32_t rank = 0; rank < size; ++rank) {
      diaries_.push_back(std::make_unique<RankDiary>(*meeting_, rank, stage));
      steps_.push_back(std::make_unique<RecoverableStep>(
          *diaries_[rank], kAgreedShape, Machine{}, Plan{.micro_batch = 4, .evaluation_batch = 4}, options));
      prepare(rank, *diaries_[rank]);
    }
    outcomes_.resize(size);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank)
      threads.emplace_back([this, rank] { outcomes_[rank] = run_one(*steps_[rank], *diaries_[rank]); });
    for (std::thread& thread : threads) thread.join();
  }
  static StepOutcome run_one(RecoverableStep& step, RankDiary& diary) {
    if (!diary.evaluates) return step.run(5);
    const auto evaluate = [](void* of, const Plan& plan) {
      return static_cast<RankDiary*>(of)->evaluate(plan);
    };
    return step.run_evaluation(5, evaluate, &diary);
  }
  void expect_all(StepOutcome outcome, int commits) {
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      EXPECT_EQ(outcomes_[rank], outcome) << rank;
      EXPECT_EQ(diaries_[rank]->commits, commits) << rank;
      if (outcome == StepOutcome::kDone) {
        EXPECT_EQ(diaries_[rank]->attempts.back(), diaries_[0]->attempts.back()) << rank;
      }
    }
  }

  std::unique_ptr<Meeting> meeting_;
  std::vector<std::unique_ptr<RankDiary>> diaries_;
  std::vector<std::unique_ptr<RecoverableStep>> steps_;
  std::vector<StepOutcome> outcomes_;
};

TEST_F(AgreedStep, IsUndoneByAllForOneAndCommittedOnce) {
  run(3, 0, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 1) diary.failures = {1};
  });
  expect_all(StepOutcome::kDone, 1);
  EXPECT_THAT(diaries_[1]->lines, ElementsAre("split_micro_batch", "ask", "restore", "commit"));
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_THAT(diaries_[rank]->lines, ElementsAre("restore", "commit")) << "with its own plan";
    EXPECT_EQ(steps_[rank]->plan().micro_batch, 4u);
  }
  EXPECT_EQ(steps_[1]->plan().micro_batch, 2u);
  EXPECT_EQ(diaries_[0]->attempts, (std::vector<uint32_t>{0, 1}));
  for (const auto& step : steps_) {
    EXPECT_EQ(step->guarantee_held(), Guarantee::kNumericallyEqual) << "the weakest of the ranks";
    ASSERT_EQ(step->records().size(), 1u);
    const RecoveryRecord& record = step->records()[0];
    EXPECT_EQ(record.action, "split_micro_batch");
    EXPECT_EQ(record.reason, "no room on 1");
    ASSERT_TRUE(record.asked);
    EXPECT_EQ(record.asked->rank, 1u);
    EXPECT_EQ(record.asked->before.micro_batch, 4u);
    EXPECT_EQ(record.asked->after.micro_batch, 2u);
  }
}

TEST_F(AgreedStep, AMoveThatKeepsEveryBitIsNobodyElsesAffair) {
  run(2, 0, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 1) diary.failures = {1}, diary.only_splits = false;
  });
  EXPECT_THAT(diaries_[0]->lines, ElementsAre("commit"));
  EXPECT_THAT(steps_[0]->records(), IsEmpty());
  EXPECT_THAT(diaries_[1]->lines, ElementsAre("recompute_mlp", "commit"));
}

TEST_F(AgreedStep, AStepThatTheOthersHaveNothingOfIsBegunAnewAlone) {
  run(2, 0, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 1) diary.failures = {1}, diary.step_can_restart = true;
  });
  EXPECT_THAT(diaries_[0]->lines, ElementsAre("commit"));
  EXPECT_THAT(diaries_[1]->lines, ElementsAre("split_micro_batch", "restore", "commit"));
}

TEST_F(AgreedStep, TwoRanksFailInTheSameAttempt) {
  run(3, 0, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank > 0) diary.failures = {1};
  });
  expect_all(StepOutcome::kDone, 1);
  for (const auto& step : steps_) EXPECT_EQ(step->records().size(), 2u);
  EXPECT_EQ(steps_[0]->records()[0].asked->rank, 1u);
  EXPECT_EQ(steps_[0]->records()[1].asked->rank, 2u);
  EXPECT_EQ(diaries_[0]->attempts, (std::vector<uint32_t>{0, 1}));
}

TEST_F(AgreedStep, AReplayMayFailOnAnotherRank) {
  run(2, 0, {}, [](uint32_t rank, RankDiary& diary) { diary.failures = {rank == 0 ? 2 : 1}; });
  expect_all(StepOutcome::kDone, 1);
  EXPECT_EQ(diaries_[0]->attempts, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(steps_[0]->plan().micro_batch, 2u);
  EXPECT_EQ(steps_[1]->plan().micro_batch, 2u);
}

TEST_F(AgreedStep, RanksThatGatherWeightsHaveOneOrderOfLayers) {
  run(3, 3, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 2) diary.failures = {1};
  });
  expect_all(StepOutcome::kDone, 1);
  for (const auto& step : steps_) EXPECT_EQ(step->plan().micro_batch, 2u);
  EXPECT_THAT(diaries_[0]->lines, ElementsAre("common_plan", "restore", "commit"));
}

TEST_F(AgreedStep, ARankWithoutRoomForTheCommonPlanAsksOnceMore) {
  run(2, 3, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 1) diary.failures = {1};
    if (rank == 0)
      diary.refused = {to_string(Plan{.micro_batch = 2, .evaluation_batch = 4})}, diary.only_splits = false;
    if (rank == 1) diary.only_splits = false, diary.refused = other_moves();
  });
  expect_all(StepOutcome::kDone, 1);
  EXPECT_EQ(diaries_[0]->attempts.back(), 2u);
  EXPECT_EQ(steps_[0]->plan().micro_batch, steps_[1]->plan().micro_batch);
  EXPECT_EQ(steps_[0]->plan().recompute, steps_[1]->plan().recompute);
  EXPECT_NE(steps_[0]->plan(), (Plan{.micro_batch = 2, .evaluation_batch = 4}));
}

TEST_F(AgreedStep, AnEvaluationThatIsSplitWeakensNoGuarantee) {
  run(2, 3, {}, [](uint32_t rank, RankDiary& diary) {
    diary.evaluates = true, diary.only_splits = false, diary.chosen = MoveKind::kSplitEvaluation;
    if (rank == 1) diary.failures = {1};
  });
  EXPECT_EQ(outcomes_, std::vector(2, StepOutcome::kDone));
  for (const auto& step : steps_) {
    EXPECT_EQ(step->plan().evaluation_batch, 2u);
    ASSERT_EQ(step->records().size(), 1u);
    EXPECT_EQ(step->records()[0].action, "split_evaluation");
    EXPECT_EQ(step->guarantee_held(), Guarantee::kBitExact);
  }
}

TEST_F(AgreedStep, AllGiveUpWhereOneHasNoPlanLeft) {
  for (const bool can_restart : {false, true}) {
    diaries_.clear(), steps_.clear();
    run(3, 0, {}, [&](uint32_t rank, RankDiary& diary) {
      if (rank == 1) diary.always = diary.refuses_all = true, diary.step_can_restart = can_restart;
    });
    expect_all(StepOutcome::kGaveUp, 0);
    for (const auto& step : steps_) {
      EXPECT_EQ(step->rank_that_gave_up(), 1u);
      EXPECT_EQ(step->last_failure(), "no room on 1");
      EXPECT_EQ(step->why_it_ended(), "no plan is left on rank 1");
      EXPECT_EQ(step->records().back().action, "give_up");
      ASSERT_TRUE(step->records().back().asked);
      EXPECT_EQ(step->records().back().asked->why_all_end, "no plan is left on rank 1");
    }
    EXPECT_EQ(steps_[0]->guarantee_held(), Guarantee::kBitExact);
    EXPECT_EQ(diaries_[0]->lines.back(), "restore");
  }
}

TEST_F(AgreedStep, ARankThatHadAPlanSaysSoWhereAnotherOneGivesUp) {
  run(3, 0, {}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 1) diary.failures = {1};
    if (rank == 2) diary.always = diary.refuses_all = true;
  });
  expect_all(StepOutcome::kGaveUp, 0);
  for (const auto& step : steps_) {
    EXPECT_EQ(step->rank_that_gave_up(), 2u);
    std::vector<std::string> actions;
    for (const RecoveryRecord& record : step->records()) {
      if (!record.asked) continue;  // a try again
      EXPECT_EQ(record.action, record.asked->rank == 1 ? "split_micro_batch" : "give_up");
      EXPECT_EQ(record.asked->why_all_end, "no plan is left on rank 2");
      actions.push_back(record.action);
    }
    EXPECT_EQ(actions.size(), 2u);
  }
}

TEST_F(AgreedStep, AttemptsAreBoundedOnAllRanksAlike) {
  run(2, 0, {.attempts = 2}, [](uint32_t rank, RankDiary& diary) { diary.failures = {rank == 0 ? 2 : 1}; });
  expect_all(StepOutcome::kGaveUp, 0);
  EXPECT_EQ(steps_[1]->rank_that_gave_up(), 0u);
  EXPECT_EQ(steps_[1]->records().back().action, "give_up");
  EXPECT_EQ(steps_[1]->why_it_ended(), "its 2 attempts are used up");
}

TEST_F(AgreedStep, ARankWithMoreAttemptsOfItsOwnEndsAllWhenTheyAreUsedUp) {
  run(2, 0, {.attempts = 3}, [](uint32_t rank, RankDiary& diary) {
    if (rank == 0) diary.failures = {1, 2}, diary.only_splits = false;
    if (rank == 1) diary.failures = {1};
  });
  expect_all(StepOutcome::kGaveUp, 0);
  for (const auto& step : steps_) {
    EXPECT_EQ(step->records().back().action, "split_micro_batch") << "which rank 1 could have gone on with";
    EXPECT_EQ(step->records().back().asked->why_all_end, "its 3 attempts are used up");
    EXPECT_EQ(step->why_it_ended(), "its 3 attempts are used up");
  }
  EXPECT_EQ(steps_[0]->rank_that_gave_up(), steps_[1]->rank_that_gave_up());
}

}  // namespace
}  // namespace spillway::trainer
