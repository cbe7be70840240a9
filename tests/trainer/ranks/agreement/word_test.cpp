// What ranks say about a failure, and what follows from it.
#include "trainer/ranks/agreement/word.h"

#include <gtest/gtest.h>

namespace spillway::trainer {
namespace {

using Says = Word::Says;
using What = Decision::What;

Word word_that(Says says, uint32_t rank, uint32_t attempt, const Plan& plan = {.micro_batch = 4}) {
  return {
      .rank = rank, .step = 7, .attempt = attempt, .says = says, .before = {.micro_batch = 4}, .plan = plan};
}

TEST(RanksDecision, IsToAdoptUntilAllAreReady) {
  const Word follows = word_that(Says::kFollows, 0, 1),
             asks = word_that(Says::kAsks, 1, 3, {.micro_batch = 2});
  const Decision first = decide({follows, asks}, 24);
  EXPECT_EQ(first.what, What::kAdopt);
  EXPECT_EQ(first.attempt, 3u) << "of all ranks, the latest";
  EXPECT_EQ(first.joined, (Plan{.micro_batch = 2}));
  EXPECT_EQ(first.asked, std::vector{asks});
  const Word ready[] = {word_that(Says::kIsReady, 0, 3), word_that(Says::kIsReady, 1, 3, {.micro_batch = 2})};
  EXPECT_EQ(decide({ready[0], ready[1]}, 24).what, What::kReplay);
  EXPECT_TRUE(decide({ready[0], ready[1]}, 24).asked.empty());
  EXPECT_EQ(decide({ready[0], asks}, 24).what, What::kAdopt) << "one had no room for it";
}

TEST(RanksDecision, IsToEndWhereOneHasNoPlanOrNoAttemptIsLeft) {
  const Word asks = word_that(Says::kAsks, 1, 3), gives_up = word_that(Says::kGivesUp, 0, 1);
  EXPECT_EQ(decide({asks, gives_up}, 24).what, What::kGiveUp);
  EXPECT_EQ(decide({asks, gives_up}, 24).asked, (std::vector{gives_up, asks})) << "in the order of ranks";
  EXPECT_EQ(decide({asks, word_that(Says::kFollows, 0, 1)}, 3).what, What::kGiveUp);
  EXPECT_EQ(decide({asks, word_that(Says::kFollows, 0, 1)}, 4).what, What::kAdopt);
}

TEST(RanksDecision, IsTheSameInAnyOrder) {
  const std::vector words{word_that(Says::kAsks, 0, 1, {.micro_batch = 2}),
                          word_that(Says::kAsks, 1, 5, {.micro_batch = 4, .recompute = {1}}),
                          word_that(Says::kFollows, 2, 2, {.micro_batch = 3, .recompute = {0}})};
  const Decision decision = decide(words, 24);
  EXPECT_EQ(decision.joined, (Plan{.micro_batch = 2, .recompute = {0, 1}}));
  EXPECT_EQ(decide({words[2], words[0], words[1]}, 24), decision);
}

TEST(RanksDecision, IsOfOneStep) {
  Word other = word_that(Says::kFollows, 1, 1);
  other.step = 8;
  EXPECT_THROW(decide({word_that(Says::kAsks, 0, 1), other}, 24), std::logic_error);
}

TEST(CommonPlan, IsEachRanksOwnUntilWeightsAreGathered) {
  const Plan own{.micro_batch = 4, .optimizer = Place::kHost};
  const Plan joined{.micro_batch = 2, .recompute = {0}, .optimizer = Place::kNvme};
  for (const uint32_t zero : {0u, 1u}) EXPECT_EQ(common_plan(own, joined, {zero}), own);
  EXPECT_EQ(common_plan(own, joined, {2}), (Plan{.micro_batch = 2, .optimizer = Place::kHost}));
  EXPECT_EQ(common_plan(own, joined, {3}),
            (Plan{.micro_batch = 2, .recompute = {0}, .optimizer = Place::kHost}))
      << "where a rank's states lie is its own affair";
}

TEST(WordsOfRanks, AreReadAsTheyWereSaid) {
  Word word = word_that(Says::kGivesUp, 2, 9, {.micro_batch = 1, .recompute = {0, 3}, .head_chunks = 4});
  word.guarantee = Guarantee::kNumericallyEqual;
  word.action = "give_up", word.phase = "backward", word.incident = 12;
  word.reason = "no room for \"8\" bytes\n\\ of device 0";
  EXPECT_EQ(word_of(to_text(word), 4), word);
  const Decision decision{.what = What::kGiveUp, .attempt = 9, .joined = word.plan, .asked = {word, word}};
  EXPECT_EQ(decision_of(to_text(decision), 4), decision);
  EXPECT_FALSE(word_of(to_text(word), 2)) << "of a model with fewer layers";
  for (const char* text : {"", "{}", "{\"rank\": 1}", "[]", "nothing"}) {
    EXPECT_FALSE(word_of(text, 4)) << text;
    EXPECT_FALSE(decision_of(text, 4)) << text;
  }
}

}  // namespace
}  // namespace spillway::trainer
