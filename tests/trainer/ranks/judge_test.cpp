// Who is said to have failed, by what a rank sees; on a time that is told.
#include "trainer/ranks/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/ranks/incident.h"

namespace spillway::trainer {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class JudgeOfRanks : public testing::Test {
 protected:
  static constexpr milliseconds kBound{5000}, kLongest{60'000}, kTick{100}, kCause{1000};

  JudgeOfRanks() { begin(0); }
  void begin(uint32_t rank) {
    now_.next = beat("backward", 7);
    now_.keeper = beat("forward", 7);
    now_.own = {.marks = 1, .step = 0, .doing = "forward", .waits = false, .may_be_long = false};
    judge_.emplace(Judge::Settings{.rank = rank,
                                   .size = 3,
                                   .store = "host:29500",
                                   .rank_0_keeps_store = true,
                                   .bound = kBound,
                                   .longest = kLongest},
                   [this](const Beat&) { return seen_; });
  }

  static Beat beat(const char* doing, uint64_t step, bool waits = false, bool overdue = false) {
    Beat beat;
    beat.count = 1, beat.step = step, beat.doing = doing, beat.waits = waits, beat.overdue = overdue;
    return beat;
  }

  // Time that passes while the next rank and the store answer, until somebody is suspected.
  std::optional<Suspicion> passes(milliseconds time, bool next_beats = true, bool store_answers = true) {
    for (; time.count() > 0; time -= kTick) {
      if (next_beats) ++now_.next->count;
      if (store_answers) ++now_.exchanges;
      if (auto found = judge_->look(kTick, now_)) return found;
    }
    return std::nullopt;
  }
  void begins(uint64_t step, const char* doing, bool waits = false, bool may_be_long = false) {
    now_.own = {.marks = now_.own.marks + 1,
                .step = step,
                .doing = doing,
                .waits = waits,
                .may_be_long = may_be_long};
  }
  // Past the first step, whose length says little.
  void settle() { passes(kTick), begins(0, "backward"), passes(kTick), begins(1, "forward"), passes(kTick); }

  Observed now_;
  ProcessSeen seen_ = ProcessSeen::kRuns;
  std::optional<Judge> judge_;
};

TEST_F(JudgeOfRanks, SilenceOfTheNextRankIsItsEnd) {
  settle();
  EXPECT_FALSE(passes(kBound, false));
  const auto found = passes(kTick, false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_THAT(found->cause, HasSubstr("rank 1 does not answer for 5.1 s: it died, hangs, or its network is "
                                      "lost (last seen in step 7: backward"));
}

TEST_F(JudgeOfRanks, AProcessThatIsGoneIsDeadAtOnceUnlessItLeft) {
  seen_ = ProcessSeen::kGone;
  EXPECT_FALSE(passes(2 * kTick, false)) << "what it said last may not have been read yet";
  EXPECT_THAT(passes(kTick, false)->cause, HasSubstr("rank 1 died: its process"));
  begin(0);
  passes(kTick, false);
  EXPECT_TRUE(judge_->in_doubt());
  now_.next->left = true;
  EXPECT_FALSE(passes(2 * kBound, false));
}

TEST_F(JudgeOfRanks, TheLastRankWatchesTheFirst) {
  begin(2);
  EXPECT_EQ(judge_->watched(), 0u);
  EXPECT_EQ(passes(2 * kBound, false)->rank, 0);
}

TEST_F(JudgeOfRanks, WhoHearsNothingFromTheStoreDoesNotAccuseTheNextRank) {
  begin(1);
  passes(kTick);
  EXPECT_FALSE(passes(kBound - 10 * kTick, false))
      << "the next one is silent, a little later the store is too";
  EXPECT_THAT(passes(2 * kBound, false, false)->cause, HasSubstr("does not answer rank 1"));
}

TEST_F(JudgeOfRanks, AStoreThatAnswersLateSaysLittleOfTheNextRank) {
  passes(kTick);
  EXPECT_FALSE(passes(kBound - kTick, false, false));
  EXPECT_FALSE(passes(kTick, false)) << "its turn may come a moment later";
  EXPECT_FALSE(passes(kTick));
  for (int late = 0; late < 2; ++late)
    EXPECT_FALSE(passes(kBound - kTick, false, false) || passes(kTick, false));
  passes(kBound - kTick, false, false);
  const auto found = passes(kTick, false);
  ASSERT_TRUE(found) << "three answers without a word of it";
  EXPECT_THAT(found->cause, HasSubstr("rank 1 does not answer for 7.5 s"));
}

TEST_F(JudgeOfRanks, AStoreThatDoesNotAnswerIsItsKeepersEnd) {
  begin(1);
  const auto found = passes(2 * kBound, true, false);
  EXPECT_EQ(found->rank, 0);
  EXPECT_THAT(found->cause, HasSubstr("the store at host:29500, which rank 0 keeps, does not answer rank 1"));
  begin(1);
  now_.store_fails = true;
  seen_ = ProcessSeen::kGone;
  EXPECT_THAT(passes(2 * kTick, true, false)->cause, HasSubstr("rank 0 died, which kept the store"));
}

TEST_F(JudgeOfRanks, ALongFirstStepIsNoHang) {
  EXPECT_FALSE(passes(5 * kBound));
  begins(1, "forward");
  EXPECT_FALSE(passes(9 * kBound)) << "the next one may take twice as long";
  EXPECT_TRUE(passes(2 * kBound));
}

TEST_F(JudgeOfRanks, AStepThatTakesTenTimesAsLongAsEverIsAHang) {
  settle();
  const auto found = passes(2 * kBound);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_THAT(found->cause, HasSubstr("rank 0 hangs: no progress for 5."));
  EXPECT_THAT(found->cause, HasSubstr("in step 1: forward"));
  begin(0);
  settle();
  passes(kBound - 10 * kTick), begins(1, "backward");  // 4 s: steps are slow here
  EXPECT_FALSE(passes(7 * kBound));
  EXPECT_TRUE(passes(2 * kBound));
}

TEST_F(JudgeOfRanks, ALongCheckpointIsNoHangAndNoMeasure) {
  settle();
  begins(1, "a checkpoint", false, true);
  EXPECT_FALSE(passes(8 * kBound));
  begins(2, "forward");
  EXPECT_TRUE(passes(2 * kBound));
}

TEST_F(JudgeOfRanks, TheFirstStepOfAnotherPlanIsMeasuredAnew) {
  settle();
  begins(1, "plan", false, true);
  ++now_.own.plans;
  EXPECT_FALSE(passes(8 * kBound)) << "states go to a disk";
  const uint64_t plans = now_.own.plans;
  begins(1, "commit"), now_.own.plans = plans;
  EXPECT_FALSE(passes(2 * kBound)) << "and are read from there";
  begins(2, "commit"), now_.own.plans = plans;
  EXPECT_FALSE(passes(3 * kBound));
  EXPECT_TRUE(passes(2 * kBound));
}

TEST_F(JudgeOfRanks, WaitingForTheOthersIsNoHangUnlessAllDo) {
  settle();
  begins(1, "a sum", true);
  EXPECT_FALSE(passes(4 * kBound));
  EXPECT_TRUE(judge_->asks_all());
  now_.all.assign(3, beat("a sum", 1, true, true));
  now_.all[2].waits = false;
  EXPECT_FALSE(passes(kBound));
  now_.all[2].waits = true;
  const auto found = passes(kTick);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, kNoSingleRank);
  EXPECT_THAT(found->cause, HasSubstr("all ranks wait for each other"));
}

TEST_F(JudgeOfRanks, ARankThatWasStoppedAccusesItselfAlone) {
  settle();
  const auto briefly = judge_->look(kBound, now_);
  EXPECT_FALSE(briefly) << "as long as the bound allows";
  EXPECT_FALSE(passes(kBound - 10 * kTick, false)) << "what it missed does not count";
  EXPECT_EQ(judge_->look(2 * kBound, now_)->cause, "rank 0 was stopped for 10.0 s");
}

TEST_F(JudgeOfRanks, ALostConnectionWaitsForItsCause) {
  settle();
  now_.lost = "Connection closed by peer";
  EXPECT_FALSE(passes(kTick));
  EXPECT_TRUE(judge_->in_doubt());
  begins(1, "a sum", true);
  EXPECT_THAT(passes(2 * kBound)->cause, HasSubstr("rank 0 lost its connection to other ranks: Connection"));
}

TEST_F(JudgeOfRanks, ASignalThatALostConnectionGoesWithHasItsCauseSoon) {
  settle();
  now_.terminated = true;
  now_.lost = "Connection closed by peer";
  begins(1, "a sum", true);
  EXPECT_FALSE(passes(kTick));
  EXPECT_TRUE(judge_->in_doubt());
  EXPECT_THAT(passes(2 * kCause)->cause, HasSubstr("rank 0 was ended from outside (SIGTERM)"));
}

// All ranks end after its step, unless it does not come to that.
TEST_F(JudgeOfRanks, ARankThatIsToEndMayDoSoAsLongAsItMakesProgress) {
  settle();
  now_.terminated = true;
  for (uint64_t part = 0; part < 20; ++part) {
    begins(1, part % 2 ? "backward" : "forward", false, true);
    EXPECT_FALSE(passes(kBound));
  }
  EXPECT_THAT(passes(5 * kBound)->cause, HasSubstr("rank 0 was ended from outside (SIGTERM)"));
}

TEST(IncidentRecord, IsReadAsItWasWritten) {
  const Incident incident{.number = new_incident_number(), .rank = 3, .cause = "rank 3 \"died\"\n\xff"};
  EXPECT_EQ(incident.number.size(), 12u);
  EXPECT_NE(incident.number, new_incident_number());
  const auto read = incident_of(to_json_text(incident));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, incident.number);
  EXPECT_EQ(read->rank, 3);
  for (const char* text : {"", "{", "[]", R"({"number":1,"rank":0,"cause":""})", R"({"number":"1"})"})
    EXPECT_FALSE(incident_of(text)) << text;
}

TEST(BeatRecord, IsReadAsItWasWritten) {
  const Beat beat{
      .count = 3, .step = 9, .doing = "forward", .waits = true, .quiet_seconds = 1.5, .left = true};
  EXPECT_EQ(beat_of(to_text(beat)), beat);
  EXPECT_FALSE(beat_of("{}"));
  EXPECT_FALSE(beat_of("no beat"));
  EXPECT_EQ(look_at(beat), ProcessSeen::kElsewhere);
}

}  // namespace
}  // namespace spillway::trainer
