// A model's training step as a StepProgram: parameters, optimizer, data and the undo log.
//
// Thread-safety: one thread. Ownership: owns parameters, moments and the batch; borrows corpus and moves.
// Errors: running out of memory is a Failure, with the exception destroyed and autograd's threads settled
// before it is returned; any other exception passes through.
#pragma once
#include <functional>

#include "trainer/config/config.h"
#include "trainer/data/batch_loader.h"
#include "trainer/data/examples.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/ranks/agreement/step_agreement.h"
#include "trainer/ranks/gradient_sums.h"
#include "trainer/ranks/shares/rank_shares.h"
#include "trainer/ranks/stages/mesh.h"
#include "trainer/ranks/whole/whole_states.h"
#include "trainer/recovery/plan_moves.h"
#include "trainer/runtime/core.h"
#include "trainer/step/loss_scale.h"
#include "trainer/step/micro_batches/pipeline.h"
#include "trainer/step/micro_batches/stage_pipeline.h"
#include "trainer/step/parameters.h"
#include "trainer/step/random_state.h"
#include "trainer/step/recoverable_step.h"
#include "trainer/step/stages/twin_gradients.h"

namespace spillway::trainer {

class TrainingStep : public StepProgram {
 public:
  // `devices[i]` is what the plan calls device i. With other ranks this one computes its share of each batch,
  // and of the evaluation, or its stage's part of that.
  TrainingStep(const Config& config, const Corpus& corpus, std::vector<at::Device> devices, const Plan& plan,
               const Core& core, PlanMoves& moves, const Mesh& mesh = {});

  void begin(const StepKey& key) override;
  void save_step() override;
  void restore_step() override;
  void restore_evaluation() override;
  void save_micro_batch(uint32_t micro_batch) override;
  void restore_micro_batch(uint32_t micro_batch) override;
  uint32_t micro_batches(const Plan& plan) const override;
  std::optional<Failure> run_micro_batch(uint32_t micro_batch, const Plan& plan) override;
  std::optional<Failure> prepare_commit() override;
  void commit() override;
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override;
  void offer_moves(const Plan& plan, const std::vector<Plan>& refused) override;
  void offer_no_move() override;
  void release_caches() override;
  void plan_changed(uint64_t step, const Plan& from, const Plan& to, uint64_t incident,
                    const std::string& reason) override;
  RanksOfStep* ranks() override { return ranks_->is_alone() ? nullptr : &agreement_; }

  // The other ranks run the next step by this plan, for which this one has no room.
  void others_run(const Plan& plan) { running_ = plan; }

  // A number that goes to the other ranks with what they vote on, and the sum of all ranks' (StepAgreement).
  void give_notice(std::function<double()> mine) { agreement_.give_notice(std::move(mine)); }
  double notices() const { return agreement_.notices(); }

  // Goes on with the rows that have no loss yet; `begin_evaluation` forgets them all.
  void begin_evaluation();
  std::optional<Failure> evaluate(const Plan& plan);
  double evaluation_loss() const { return evaluation_loss_; }  // mean per token, in nats
  void end_evaluation();

  // Of the last step: the mean of all its targets, of whichever micro-batches and ranks they were.
  double loss() const;
  double gradient_norm() const { return optimizer_.gradient_norm(); }
  // What is running: "forward", "backward", "optimizer", "commit", "evaluation", "plan", or "" between them.
  const char* phase() const { return phase_; }

  uint64_t step() const { return step_; }        // committed so far
  uint64_t cursor() const { return cursor_; }    // rows drawn by committed steps
  uint64_t targets() const { return targets_; }  // tokens that the last step's loss is of
  void set_progress(uint64_t step, uint64_t cursor) { step_ = step, cursor_ = cursor; }
  const Model& model() const { return model_; }
  // In the most digits that there are, by the order of the model's table; where states are exchanged, on the
  // terms of `whole_states`.
  at::Tensor trained_weight(size_t index);
  WholeStates& whole_states() { return whole_states_; }
  // Of what is at both ends of a pipeline of stages: the same on both.
  uint64_t hash_of_twins();
  // What a person should know of how it computes, and of the disk that has some of it.
  std::vector<std::string> remarks() const;
  Parameters& parameters() { return parameters_; }
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  LossScale& loss_scale() { return loss_scale_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  const std::vector<at::Device>& devices() const { return devices_; }
  const ActivationHost& activations() const { return *activations_; }

 private:
  TrainingStep(const Config& config, const Corpus& corpus, std::vector<at::Device> devices, const Plan& plan,
               const Core& core, PlanMoves& moves, const Mesh& mesh, const InitialValues& initial);
  std::optional<Failure> guarded(const char* phase, const std::function<void()>& work);
  void enter(const char* phase);
  void in_commit(const std::function<void()>& work);
  void forget_work();
  std::unique_ptr<MicroBatch> begin_micro_batch(uint32_t number, const Plan& plan);
  bool has_rows(uint32_t micro_batch, const Plan& plan) const;
  bool updates_later(const Plan& plan) const;
  uint32_t update_slots(const Plan& plan) const;
  bool updates_on_host(const Plan& plan) const;
  void announce(uint32_t micro_batch, const Plan& plan);
  void pass_over(uint32_t micro_batch, const Plan& plan);
  void drain(bool evaluating);
  void drain_evaluation();
  bool has_summed() const { return gradient_sums_.has_begun() || parameters_.has_summed(); }
  at::Tensor evaluate_rows(uint32_t first, const Plan& plan);
  at::Tensor evaluate_here(const at::Tensor& tokens, const Plan& plan);
  uint32_t most_under_way(const Plan& plan) const;
  uint32_t rows_of_message(const Plan& plan) const;
  uint32_t rows_to_reserve(const Plan& plan) const;
  void reserve_messages(const Plan& plan);
  void follow_messages(const Plan& plan);
  void drain_messages(bool evaluating);
  std::vector<std::vector<Span>> measured() const;
  UpdateShare update_share();
  void gather_updated(size_t group);
  Shares shares();
  std::optional<uint32_t> sums_beside(const Plan& plan) const;
  double sum_of_losses();
  at::Tensor rows(const std::vector<int64_t>& tokens, uint32_t first, uint32_t count) const;
  uint64_t targets_in(const std::vector<int64_t>& rows) const;  // without padding

  const Config config_;
  const Examples examples_;
  BatchLoader loader_;
  const Mesh mesh_;
  const Model model_;
  const std::vector<at::Device> devices_;
  const Core& core_;
  PlanMoves& moves_;
  const std::shared_ptr<Ranks> ranks_;     // all of them
  const std::shared_ptr<Ranks> replicas_;  // that have the same parameters as this one
  const Ranks::Share share_;               // of a batch's rows
  const Partition partition_;
  const uint32_t zero_;  // the stage of ZeRO, 0 of a process without replicas
  const bool is_sharded_;
  Exchange exchange_;
  std::vector<CopyStream::Mark> gathered_;  // weights behind the last update, by group
  Parameters parameters_;
  GradientSums gradient_sums_;
  TwinGradients twins_;
  StepAgreement agreement_;
  Optimizer optimizer_;
  WholeStates whole_states_;
  LossScale loss_scale_;
  const std::shared_ptr<ActivationHost> activations_;

  uint64_t step_ = 0, cursor_ = 0;
  const char* phase_ = "";
  std::vector<int64_t> batch_, evaluation_rows_;
  uint64_t targets_ = 0;     // of the batch
  at::Tensor queued_batch_;  // the same, where copies to the device read it
  RandomState step_random_;
  StageMessages messages_;
  const std::unique_ptr<MicroBatchSchedule> pipeline_;
  std::vector<at::Tensor> sums_;  // of the losses, by micro-batch; on the device until the step's end
  double loss_ = 0;               // their sum, over the ranks too
  std::vector<double> evaluation_losses_;  // sums, by row of this rank
  uint32_t evaluated_ = 0;                 // rows, of the rank that has most
  uint32_t evaluation_batch_ = 1;          // of the plan that it goes by
  double evaluation_loss_ = 0;
  uint32_t micro_batch_count_ = 0;
  uint32_t passes_ = 0;         // of this step that were begun, the one under way too
  bool just_in_time_ = false;   // as the step's plan has it
  std::optional<Plan> proven_;  // the plan that the last committed step ended with
  Plan running_;
};

}  // namespace spillway::trainer
