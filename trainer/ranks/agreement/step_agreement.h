// A step's last exchanges between its ranks: the loss, the squares of the gradients and, with these, the vote
// on its commit.
//
// A step is committed when no rank has asked to undo it. The request travels in the sum of the squares, so
// that a step without a failure has no exchange more. Where the rule of the update allocates memory behind
// that sum, there is one more, by which all know that all have what they need.
//
// A rank's notice to the others goes with the vote: a sum of its own would have the host wait for all that
// its device was given.
//
// Each number is added up once a step, whatever fails in between: the other ranks do not do it again.
//
// Thread-safety: one thread. Ownership: borrows the ranks. Errors: RanksEnded, c10d's exceptions.
#pragma once
#include <functional>

#include "trainer/ranks/agreement/ranks_of_step.h"
#include "trainer/ranks/ranks.h"

namespace spillway::trainer {

class StepAgreement : public RanksOfStep {
 public:
  // `drain` takes part in what ranks exchange of the step before its loss, or of the evaluation, as far as
  // this one has not yet.
  // `confirms`: the update allocates behind the squares.
  StepAgreement(Ranks& ranks, uint32_t layers, const SharedWork& work, bool confirms,
                std::function<void(bool evaluating)> drain);

  // Of a step, of its replay, or of an evaluation: nothing is exchanged.
  void begin(uint64_t step);
  bool has_loss() const { return loss_.has_value(); }
  // A number that this rank gives with each vote and each evaluation, and the sum of all ranks' of the last.
  void give_notice(std::function<double()> mine) { notice_ = std::move(mine); }
  double notices() const { return notices_; }
  // Over the ranks.
  double loss(double mine);
  double squares(double mine);
  double evaluation(double mine);
  // Behind what the update has prepared.
  void confirm();

  uint32_t rank() const override { return ranks_.rank(); }
  SharedWork shared_work() const override { return work_; }
  bool undo_is_asked() const override { return is_asked_; }
  void ask_to_undo(bool evaluating) override;
  Decision decide(const Word& mine, uint32_t attempts) override;

 private:
  double add_up(double mine, bool asks);

  Ranks& ranks_;
  const uint32_t layers_;
  const SharedWork work_;
  const bool confirms_;
  const std::function<void(bool evaluating)> drain_;
  std::function<double()> notice_;
  double notices_ = 0;
  uint64_t step_ = 0;
  std::optional<double> loss_, squares_;
  bool is_confirmed_ = false, is_asked_ = false;
};

}  // namespace spillway::trainer
