// A step of which this rank computes a stage's part: what it does together with the other stages.
#include "trainer/step/training_step.h"

namespace spillway::trainer {

// What is at both ends counts once in the norm.
std::vector<std::vector<Span>> TrainingStep::measured() const {
  std::vector<std::vector<Span>> own = partition_.own(replicas_->rank());
  for (size_t i = 0; i < own.size(); ++i)
    if (model_.table()[i].is_twin && !mesh_.stage().is_first()) own[i].clear();
  return own;
}

uint64_t TrainingStep::hash_of_twins() {
  return parameters_.hash([this](size_t index, size_t which) {
    return model_.table()[index].is_twin ? parameters_.read_stored(index, which) : at::zeros({0});
  });
}

uint32_t TrainingStep::most_under_way(const Plan& plan) const {
  if (!mesh_.has_stages()) return in_flight(plan, share_.count);
  return std::min(mesh_.stage().most_under_way(), trainer::micro_batches(plan, share_.count));
}

uint32_t TrainingStep::rows_of_message(const Plan& plan) const {
  return std::clamp(plan.micro_batch, 1u, std::max(1u, share_.count));
}

// Also for a plan of the schedule that the other stages run, and for which this one has no room.
uint32_t TrainingStep::rows_to_reserve(const Plan& plan) const {
  uint32_t most = rows_of_message(plan);
  for (const auto& [step, scheduled] : config_.schedule) most = std::max(most, rows_of_message(scheduled));
  return most;
}

void TrainingStep::reserve_messages(const Plan& plan) {
  if (mesh_.has_stages()) messages_.reserve(rows_to_reserve(plan));
}

// All stages pass what an evaluation has in slices of the training's rows, which are fewer in most cases.
// What an earlier plan needed more goes now, when nobody can undo a step of that plan any more.
void TrainingStep::follow_messages(const Plan& plan) {
  if (!mesh_.has_stages()) return;
  messages_.pass_in_slices(rows_of_message(plan));
  messages_.give_back_beyond(rows_to_reserve(plan));
}

void TrainingStep::drain_messages(bool evaluating) {
  if (!mesh_.has_stages()) return;
  if (!evaluating) messages_.pass_in_slices(rows_of_message(running_));
  const uint32_t all = evaluating ? replicas_->share_of(config_.evaluation.windows).count : share_.count;
  const uint32_t size = std::min(evaluating ? evaluation_batch_ : running_.micro_batch, std::max(1u, all));
  const auto rows = [&](uint32_t number) { return int64_t{std::min(size, all - number * size)}; };
  messages_.drain((all + size - 1) / size, !evaluating, rows);
}

// A stage before the last one has no losses.
at::Tensor TrainingStep::evaluate_here(const at::Tensor& tokens, const Plan& plan) {
  const Stage& stage = mesh_.stage();
  if (stage.is_alone()) return model_.row_losses(parameters_.weights(), tokens, plan).cpu();
  const at::NoGradGuard no_grad;
  const uint32_t number = evaluated_ / plan.evaluation_batch;
  at::Tensor input;
  if (!stage.is_first()) input = messages_.input(number, tokens.size(0));
  enter("evaluation");  // and waits no more
  at::Tensor result = model_.row_losses(parameters_.weights(), tokens, plan, input);
  if (stage.is_last()) ranks_->wait_for_sums([&] { result = result.cpu(); });
  if (!stage.is_last()) messages_.give_output(number, std::exchange(result, {}));
  messages_.done(number);
  return result;
}

}  // namespace spillway::trainer
