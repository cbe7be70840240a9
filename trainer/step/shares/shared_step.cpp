// What ranks share of a step, updates, gradients and weights: all exchange the same things, however many rows
// each has.
#include "trainer/step/training_step.h"

#include "trainer/plan/schedule.h"
#include "trainer/step/staged_pieces.h"

namespace spillway::trainer {

Shares TrainingStep::shares() {
  if (zero_ < 2) return {};
  Shares shares{
      .own = {}, .of_values = zero_ >= 3, .exchange = std::make_shared<RankShares>(partition_, exchange_)};
  for (size_t i = 0; i < model_.table().size(); ++i) {
    const Span& own = partition_.sections(i)[replicas_->rank()];
    shares.own.push_back(own.length > 0 ? own : Span{});
  }
  return shares;
}

UpdateShare TrainingStep::update_share() {
  if (ranks_->is_alone()) return {};
  UpdateShare share{.updated = partition_.updated(replicas_->rank(), is_sharded_ ? 1 : 0),
                    .measured = measured(),
                    .over_ranks = [this](double mine) { return agreement_.squares(mine); },
                    .after_update = nullptr};
  if (!is_sharded_) return share;
  share.after_update = [this](size_t index) {
    if (partition_.ends_group(index) && !parameters_.is_shared(index))
      gather_updated(partition_.group_of(index));
  };
  return share;
}

// What a rank updates comes to all others a group at a time: beside the updates behind it and the next
// forward, or else while the group is in its slot; of what they share, when it is used next.
void TrainingStep::gather_updated(size_t group) {
  const auto gather = [&] {
    StagedPieces staged(parameters_, &TiledMatrix::Run::value);
    const auto rows = [&](const Partition::Piece& of) {
      if (parameters_.is_tiled(of.parameter)) return std::vector<at::Tensor>{staged.of(of)};
      return parameters_.rows_of(of.parameter, of.span);
    };
    exchange_.gather(group, rows, [&] { staged.take_apart(); });
  };
  const int unit = partition_.part_number(group);
  if (!parameters_.stays_on_device(unit)) return gather();
  gathered_.resize(partition_.groups());
  gathered_[group] = exchange_.beside(gather, std::move(gathered_[group]));
  parameters_.become_whole(unit, gathered_[group]);
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
