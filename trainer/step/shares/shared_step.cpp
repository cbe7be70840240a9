// A step of ranks that have gradients together, and weights: all exchange the same things, however many rows
// each has.
#include "trainer/step/training_step.h"

#include "trainer/plan/schedule.h"

namespace spillway::trainer {

Shares TrainingStep::shares() {
  if (zero_ < 2) return {};
  Shares shares{.own = {},
                .of_values = zero_ >= 3,
                .exchange = std::make_shared<RankShares>(partition_, exchange_, devices_[0])};
  for (size_t i = 0; i < model_.table().size(); ++i) {
    const Span& own = partition_.sections(i)[replicas_->rank()];
    shares.own.push_back(own.length > 0 ? own : Span{});
  }
  return shares;
}

// Where each micro-batch is added up over the ranks all have as many as the one that has most rows.
uint32_t TrainingStep::micro_batches(const Plan& plan) const {
  return trainer::micro_batches(plan,
                                zero_ < 2 ? share_.count : replicas_->largest_share_of(config_.train.batch));
}

bool TrainingStep::has_rows(uint32_t micro_batch, const Plan& plan) const {
  return micro_batch * std::min(plan.micro_batch, share_.count) < share_.count;
}

void TrainingStep::announce(uint32_t micro_batch, const Plan& plan) {
  passes_ = micro_batch + 1;
  parameters_.follow(training_uses(config_.model, plan));
}

// A micro-batch of which the other ranks have rows.
void TrainingStep::pass_over(uint32_t micro_batch, const Plan& plan) {
  announce(micro_batch, plan);
  parameters_.begin_micro_batch(micro_batch);
  parameters_.pass_over();
}

// What is left of the step by the plan that the other ranks run, or of the evaluation. A plan for which there
// was no room may have left layers elsewhere without their slots.
void TrainingStep::drain(bool evaluating) {
  const at::NoGradGuard no_grad;
  parameters_.reserve();
  drain_messages(evaluating);
  if (evaluating) return drain_evaluation();
  if (zero_ < 2) return gradient_sums_.drain(), twins_.add_up();
  if (passes_ > 0) {
    parameters_.begin_micro_batch(passes_ - 1);
    parameters_.pass_over();
    parameters_.end_micro_batch();
  }
  for (const uint32_t count = micro_batches(running_); passes_ < count;) {
    pass_over(passes_, running_);
    parameters_.end_micro_batch();
  }
}

void TrainingStep::drain_evaluation() {
  if (zero_ < 3) return;
  parameters_.pass_over();
  for (uint32_t first = evaluated_ + evaluation_batch_;
       first < replicas_->largest_share_of(config_.evaluation.windows); first += evaluation_batch_) {
    parameters_.follow(evaluation_uses(config_.model));
    parameters_.pass_over();
  }
}

// The losses of this rank's rows among those from `first` on of the rank that has most.
at::Tensor TrainingStep::evaluate_rows(uint32_t first, const Plan& plan) {
  const Ranks::Share share = replicas_->share_of(config_.evaluation.windows);
  parameters_.follow(evaluation_uses(config_.model));
  if (first >= share.count) return parameters_.pass_over(), at::zeros({0});
  at::Tensor tokens;
  const auto read = [&] {
    tokens =
        rows(evaluation_rows_, share.first + first, std::min(plan.evaluation_batch, share.count - first));
  };
  // Behind what the current stream was given: on a stage a message of another one.
  mesh_.has_stages() ? ranks_->wait_for_sums(read) : read();
  return evaluate_here(tokens, plan);
}

}  // namespace spillway::trainer
