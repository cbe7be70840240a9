// What a recoverable step does together with the other ranks.
#include <algorithm>
#include <utility>

#include "trainer/step/recoverable_step.h"

namespace spillway::trainer {

Word RecoverableStep::word(uint64_t step, Word::Says says) const {
  return {.rank = program_.ranks() ? program_.ranks()->rank() : 0,
          .step = step,
          .attempt = says == Word::Says::kFollows ? attempt_ + 1 : attempt_,
          .says = says,
          .before = plan_,
          .plan = plan_};
}

// Of a rank that has met a failure which concerns all, or has heard of one. All ranks are here then.
RecoverableStep::Resume RecoverableStep::together(uint64_t step, bool evaluating) {
  RanksOfStep& ranks = *program_.ranks();
  if (word_.says != Word::Says::kFollows) ranks.ask_to_undo(evaluating);
  while (true) {
    const Decision decision = ranks.decide(word_, options_.attempts);
    record(step, decision);
    attempt_ = decision.attempt;
    if (decision.what == Decision::What::kReplay) return Resume::kStep;
    if (decision.what == Decision::What::kGiveUp) return Resume::kNever;
    adopt_common(step, evaluating, decision);
  }
}

// Where there is no room for it this rank asks once more, with a move of its own.
void RecoverableStep::adopt_common(uint64_t step, bool evaluating, const Decision& decision) {
  const Plan to = common_plan(plan_, decision.joined, shared_work());
  if (to == plan_) {
    word_ = word(step, Word::Says::kIsReady);
    return;
  }
  if (auto failure = program_.adopt(plan_, to)) {
    program_.adopt(to, plan_);
    failure->step_can_restart = false;
    recover(std::move(*failure), step, evaluating);
    return;
  }
  program_.plan_changed(step, plan_, to, 0, "common_plan");
  earlier_.push_back(std::exchange(plan_, to));
  program_.offer_moves(plan_, refused_);
  word_ = word(step, Word::Says::kIsReady);
}

// Each failure for which ranks asked. A rank's own have a record already.
void RecoverableStep::record(uint64_t step, const Decision& decision) {
  const bool ends = decision.what == Decision::What::kGiveUp;
  if (ends) why_it_ended_ = decision.why_it_ends, gave_up_ = decision.ended_by;
  for (const Word& word : decision.asked) {
    if (!ends) held_ = std::max(held_, word.guarantee);
    if (ends && word.rank == decision.ended_by) last_failure_ = word.reason;
    const bool is_own = word.rank == program_.ranks()->rank();
    const AskedUndo asked{.rank = word.rank,
                          .is_this_rank = is_own,
                          .attempt = decision.attempt,
                          .guarantee = word.guarantee,
                          .before = word.before,
                          .after = word.plan,
                          .why_all_end = decision.why_it_ends};
    if (is_own) {
      records_[own_record_].asked = asked;
      continue;
    }
    records_.push_back({.step = step,
                        .attempt = decision.attempt,
                        .phase = word.phase,
                        .action = word.action,
                        .guarantee = word.guarantee,
                        .incident = word.incident,
                        .plan = plan_,
                        .reason = word.reason,
                        .asked = asked});
  }
}

void RecoverableStep::give_up(uint64_t step, const std::string& why) {
  if (!program_.ranks()) return;
  begin_attempts();
  program_.begin({step, attempt_, hash(plan_)});
  program_.save_step();
  word_ = word(step, Word::Says::kGivesUp);
  word_.action = "give_up", word_.phase = "plan", word_.reason = why;
  own_record_ = records_.size();
  records_.push_back({.step = step,
                      .phase = word_.phase,
                      .action = word_.action,
                      .guarantee = Guarantee::kBitExact,
                      .plan = plan_,
                      .reason = why});
  together(step, false);
  program_.restore_step();
}

}  // namespace spillway::trainer
