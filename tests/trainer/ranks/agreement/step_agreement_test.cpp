// The vote on a step's commit: two ranks in two threads, over Gloo.
#include "trainer/ranks/agreement/step_agreement.h"

#include "tests/trainer/ranks/over_threads.h"

namespace spillway::trainer {
namespace {

constexpr uint32_t kAgreedLayers = 2;

// `work(ranks, agreement, drains)` on each; the drain has two sums, as a step has before its loss, and as an
// evaluation has none.
template <class Work>
void with_agreements(bool confirms, const Work& work) {
  on_ranks(2, [&](const std::shared_ptr<Ranks>& ranks) {
    int drained = 0;
    StepAgreement agreement(*ranks, kAgreedLayers, SharedWork{}, confirms, [&](bool evaluating) {
      for (; !evaluating && drained < 2; ++drained) ranks->sum(0);
    });
    agreement.begin(3);
    work(*ranks, agreement, drained);
  });
}

void exchange_all(Ranks& ranks, StepAgreement& agreement) {
  ranks.sum(1), ranks.sum(1);
  agreement.loss(2), agreement.squares(3), agreement.confirm();
}

TEST(StepAgreement, ExchangesEachNumberOnceAStep) {
  with_agreements(true, [](Ranks& ranks, StepAgreement& agreement, int) {
    EXPECT_FALSE(agreement.has_loss());
    EXPECT_EQ(agreement.loss(ranks.rank() + 1), 3);
    EXPECT_EQ(agreement.squares(ranks.rank() + 2), 5);
    agreement.confirm();
    EXPECT_EQ(agreement.loss(100), 3) << "as after a failure in what follows";
    EXPECT_EQ(agreement.squares(100), 5);
    agreement.confirm();
    EXPECT_FALSE(agreement.undo_is_asked());
    EXPECT_EQ(ranks.sum(1), 2);
    agreement.begin(4);
    EXPECT_EQ(agreement.squares(ranks.rank()), 1);
  });
}

// Also with the vote of a step that is undone.
TEST(StepAgreement, ANoticeGoesWithTheVote) {
  with_agreements(false, [](Ranks& ranks, StepAgreement& agreement, int) {
    double mine = 0;
    agreement.give_notice([&] { return mine; });
    agreement.loss(1), agreement.squares(1);
    EXPECT_EQ(agreement.notices(), 0);
    mine = ranks.rank() == 1 ? 8 : 0;
    agreement.squares(1);
    EXPECT_EQ(agreement.notices(), 0) << "this step's has gone";
    agreement.begin(4);
    ranks.leads() ? agreement.ask_to_undo(false) : exchange_all(ranks, agreement);
    EXPECT_EQ(agreement.notices(), 8);
    mine = 1;
    agreement.evaluation(1);
    EXPECT_EQ(agreement.notices(), 2);
  });
}

// From wherever it stands.
TEST(StepAgreement, ARankAsksWithTheSumsThatAreLeft) {
  for (int made = 0; made < 4; ++made)
    with_agreements(false, [&](Ranks& ranks, StepAgreement& agreement, int& drained) {
      if (ranks.leads()) {
        for (; drained < std::min(made, 2); ++drained) ranks.sum(1);
        if (made > 2) {
          EXPECT_EQ(agreement.loss(5), 7);
        }
        agreement.ask_to_undo(false);
      } else {
        exchange_all(ranks, agreement);
      }
      EXPECT_TRUE(agreement.undo_is_asked()) << made;
      EXPECT_EQ(ranks.sum(1), 2) << "no rank has a sum more";
      agreement.begin(3);
      EXPECT_FALSE(agreement.undo_is_asked());
    });
}

// Where the rule of the update allocates behind the sum of the squares.
TEST(StepAgreement, ARankAsksBehindTheSquares) {
  with_agreements(true, [&](Ranks& ranks, StepAgreement& agreement, int&) {
    agreement.loss(1), agreement.squares(1);
    EXPECT_FALSE(agreement.undo_is_asked());
    ranks.leads() ? agreement.ask_to_undo(false) : agreement.confirm();
    EXPECT_TRUE(agreement.undo_is_asked());
    EXPECT_EQ(ranks.sum(1), 2);
  });
}

TEST(StepAgreement, NobodyAsksWhenTheOthersMayHaveCommitted) {
  with_agreements(false, [&](Ranks&, StepAgreement& agreement, int&) {
    agreement.loss(1), agreement.squares(1);
    EXPECT_THROW(agreement.ask_to_undo(false), std::logic_error);
  });
}

TEST(StepAgreement, ARankEndsAnEvaluation) {
  with_agreements(false, [&](Ranks& ranks, StepAgreement& agreement, int&) {
    ranks.leads() ? agreement.ask_to_undo(true) : void(agreement.evaluation(4));
    EXPECT_TRUE(agreement.undo_is_asked());
    EXPECT_EQ(ranks.sum(1), 2);
  });
}

TEST(StepAgreement, RanksHaveOneDecision) {
  with_agreements(false, [&](Ranks& ranks, StepAgreement& agreement, int&) {
    Word mine{.rank = ranks.rank(), .step = 3, .attempt = 1, .plan = {.micro_batch = 4}};
    if (ranks.rank() == 1) mine.says = Word::Says::kAsks, mine.plan.recompute = {1}, mine.reason = "full";
    const Decision decision = agreement.decide(mine, 24);
    EXPECT_EQ(decision.what, Decision::What::kAdopt);
    EXPECT_EQ(decision.joined, (Plan{.micro_batch = 4, .recompute = {1}}));
    ASSERT_EQ(decision.asked.size(), 1u);
    EXPECT_EQ(decision.asked[0].rank, 1u);
    EXPECT_EQ(decision.asked[0].reason, "full");
  });
}

}  // namespace
}  // namespace spillway::trainer
