#include "trainer/step/training_step.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <charconv>
#include <cstring>
#include <numeric>
#include <string_view>

#include "trainer/data/mix.h"
#include "trainer/plan/parameters/tiles.h"
#include "trainer/plan/schedule.h"
#include "trainer/residency/host_tensor.h"
#include "trainer/runtime/out_of_memory.h"

namespace spillway::trainer {
namespace {

// "on device 1" of Spillway's allocator, "GPU 1 has a total capacity" of LibTorch's; else the first one.
uint32_t device_in(const std::string& text) {
  for (const std::string_view before : {"on device ", "GPU "}) {
    const size_t at = text.find(before);
    if (at == std::string::npos) continue;
    uint32_t device = 0;
    const char* const number = text.data() + at + before.size();
    if (std::from_chars(number, text.data() + text.size(), device).ec == std::errc()) return device;
  }
  return 0;
}

}  // namespace

void TrainingStep::enter(const char* phase) {
  phase_ = phase;
  core_.phase(*phase ? phase : nullptr);
  if (phase == std::string_view("plan"))
    ranks_->changes_plan(step_);
  else if (*phase)
    ranks_->works(phase, step_);
}

// Also in the middle of another phase, where a layer's update is due.
void TrainingStep::in_commit(const std::function<void()>& work) {
  const char* const before = phase_;
  enter("commit");
  work();
  enter(before);
}

std::optional<Failure> TrainingStep::guarded(const char* phase, const std::function<void()>& work) {
  std::optional<Failure> failure;
  enter(phase);
  try {
    work();
  } catch (const HostOutOfMemory& error) {
    failure = Failure{error.what_without_backtrace(), phase_, {}, error.note(true)};
  } catch (const c10::OutOfMemoryError& error) {
    failure = Failure{error.what_without_backtrace(), phase_, {}, 0};
  } catch (const c10::Error& error) {
    if (!says_out_of_memory(error.what_without_backtrace())) throw;
    failure = Failure{error.what_without_backtrace(), phase_, {}, 0};
  } catch (const ActivationsLost& error) {
    activations_->leave_disk(error.what());
    failure = Failure{.text = error.what(), .phase = phase_, .chosen = {}, .needs_a_move = false};
  } catch (const RecordLost&) {
    parameters_.settle();  // no other thread goes on with the pass while the run ends
    throw;
  }
  // The exception is gone and with it the tensors that it kept alive.
  enter("");
  if (!failure) return std::nullopt;
  parameters_.settle();
  exchange_.join();
  failure->device = device_in(failure->text);
  // The ladder does not choose for the host; what it chose before is taken all the same.
  uint64_t incident = 0;
  const spillway_strategy_id chosen = core_.chosen_move(&incident);
  if (failure->incident == 0) {
    failure->incident = incident;
    failure->chosen = moves_.kind_of(chosen);
  }
  return failure;
}

void TrainingStep::begin(const StepKey& key) {
  core_.step_begin(key.step, key.attempt, key.plan_hash);
}

void TrainingStep::save_step() {
  // Of the step and the rank alone: a run that is resumed by more ranks, or fewer, needs none of their
  // states.
  if (!ranks_->is_alone()) RandomState::seed(devices_, mix(mix(config_.train.seed, step_), ranks_->rank()));
  step_random_ = RandomState::of(devices_);
  loader_.take(cursor_, &batch_);
  std::memcpy(queued_batch_.mutable_data_ptr<int64_t>(), batch_.data(), queued_batch_.nbytes());
  targets_ = targets_in(batch_);
  forget_work();
}

void TrainingStep::restore_step() {
  forget_work();
  step_random_.restore();
}

// Of the step: nothing is computed, and nothing exchanged.
void TrainingStep::forget_work() {
  pipeline_->clear();
  sums_.clear();
  gradient_sums_.begin();
  twins_.begin();
  messages_.begin();
  agreement_.begin(step_);
  loss_ = 0;
  passes_ = 0;
  parameters_.clear_gradients();
  optimizer_.forget_norms();
}

void TrainingStep::save_micro_batch(uint32_t micro_batch) {
  pipeline_->save(micro_batch);
}
void TrainingStep::restore_micro_batch(uint32_t micro_batch) {
  pipeline_->restore(micro_batch);
}

uint64_t TrainingStep::targets_in(const std::vector<int64_t>& rows) const {
  const size_t row = examples_.row_tokens(), targets = examples_.target_tokens();
  uint64_t count = 0;
  for (size_t end = row; end <= rows.size(); end += row)
    for (size_t i = end - targets; i < end; ++i) count += rows[i] != kPadding ? 1 : 0;
  return count;
}

at::Tensor TrainingStep::rows(const std::vector<int64_t>& tokens, uint32_t first, uint32_t count) const {
  const int64_t row = examples_.row_tokens();
  auto* begin = const_cast<int64_t*>(tokens.data()) + first * row;  // from_blob has no const form; only read
  return at::from_blob(begin, {count, row}, at::kLong).to(devices_[0]);
}

std::unique_ptr<MicroBatch> TrainingStep::begin_micro_batch(uint32_t number, const Plan& plan) {
  const uint32_t size = std::min(plan.micro_batch, share_.count), first = number * size;
  const at::Tensor rows = queued_batch_.narrow(0, share_.first + first, std::min(size, share_.count - first))
                              .to(devices_[0], /*non_blocking=*/true);
  announce(number, plan);  // behind it: the link takes copies in their order
  // By the targets of the whole batch, of all ranks, whatever the split and however many a micro-batch has.
  const bool in_pieces = !mesh_.has_stages() && most_under_way(plan) > 1;
  at::Tensor input;
  if (!mesh_.stage().is_first()) {
    input = messages_.input(number, rows.size(0));
    enter("forward");  // and waits no more
  }
  return std::make_unique<MicroBatch>(number, model_, parameters_.weights(), rows, plan,
                                      loss_scale_.value() / double(targets_), in_pieces, activations_, input);
}

std::optional<Failure> TrainingStep::run_micro_batch(uint32_t micro_batch, const Plan& plan) {
  micro_batch_count_ = micro_batches(plan);
  just_in_time_ = updates_later(plan);
  gradient_sums_.beside(sums_beside(plan));
  running_ = plan;
  sums_.resize(micro_batch_count_);
  const MicroBatchSchedule::Run run{.count = micro_batch_count_,
                                    .most = most_under_way(plan),
                                    .begin =
                                        [&](uint32_t number) {
                                          enter("forward");
                                          return begin_micro_batch(number, plan);
                                        },
                                    .before_backward =
                                        [&](const MicroBatch& one) {
                                          enter("backward");
                                          parameters_.begin_micro_batch(
                                              one.number(), one.number() + 1 == micro_batch_count_);
                                        }};
  auto failure = guarded("forward", [&] {
    if (micro_batch == 0) follow_messages(plan);
    if (has_rows(micro_batch, plan))
      sums_[micro_batch] = pipeline_->run(micro_batch, run);
    else
      pass_over(micro_batch, plan);
    parameters_.end_micro_batch();
  });
  if (failure) {
    pipeline_->drop();
    failure->step_can_restart = !mesh_.has_stages() && !has_summed();
    failure->can_be_repeated = zero_ < 3;
  }
  return failure;
}

// Ranks update sharded states together, and their plans may differ.
bool TrainingStep::updates_later(const Plan& plan) const {
  return plan.just_in_time && !is_sharded_;
}

uint32_t TrainingStep::update_slots(const Plan& plan) const {
  return updates_later(plan) ? plan.slots_of_update() : kLeastUpdateSlots;
}

bool TrainingStep::updates_on_host(const Plan& plan) const {
  return plan.updates_on_host() && !is_sharded_ && updates_at_once(config_.train.numerics);
}

// Beside the last backward of a plan that has gone through a step: memory is unlikely to run out then, and
// from the first sum on the step cannot begin anew. Gradients that live elsewhere are on the device for too
// short a time.
std::optional<uint32_t> TrainingStep::sums_beside(const Plan& plan) const {
  if (replicas_->is_alone() || zero_ >= 2 || plan.gradients != Place::kDevice || proven_ != plan)
    return std::nullopt;
  return micro_batch_count_ - 1;
}

// Not before the end of a step: it waits for the devices.
double TrainingStep::sum_of_losses() {
  double sum = 0;
  ranks_->wait_for_sums([&] {
    for (const at::Tensor& one : sums_)
      if (one.defined()) sum += one.item().toDouble();  // else it had no rows
  });
  return sum;
}

// Ranks exchange each thing once, whatever fails in between: the others do not do it again.
std::optional<Failure> TrainingStep::prepare_commit() {
  auto failure = guarded("optimizer", [&] {
    zero_ < 2 ? gradient_sums_.add_up() : exchange_.join();
    twins_.add_up();
    loss_ = agreement_.loss(agreement_.has_loss() ? 0 : sum_of_losses());
    optimizer_.prepare(step_, loss_scale_.value());
    agreement_.confirm();
  });
  if (failure)
    failure->step_can_restart = !mesh_.has_stages() && !has_summed();
  else
    sums_.clear();
  return failure;
}

void TrainingStep::commit() {
  parameters_.check_complete(micro_batch_count_);
  const auto later = [this](const std::function<void()>& layer) { in_commit(layer); };
  in_commit([&] { loss_scale_.after_step(just_in_time_ ? optimizer_.commit(later) : optimizer_.commit()); });
  proven_ = running_;
  core_.step_end(step_, targets_);
  ++step_;
  cursor_ += config_.train.batch;
}

std::optional<Failure> TrainingStep::adopt(const Plan& from, const Plan& to) {
  return guarded("plan", [&] {
    const Homes homes(to, devices_);
    optimizer_.set_updates_on_host(updates_on_host(to));
    optimizer_.set_update_slots(std::min(update_slots(from), update_slots(to)));
    // Matrices are whole before they go where they cannot be in tiles, and are cut where they can be.
    const uint32_t tiles = tiles_of(to, config_.train.numerics);
    if (tiles == 1) parameters_.set_tiles(1);
    parameters_.leave_devices(to.parameters, to.gradients, homes);
    parameters_.set_tiles(tiles);
    activations_->move_to(to.offload_to, homes);
    // Away from the devices first, and onto them last.
    const bool moves = from.optimizer != to.optimizer || from.peers != to.peers;
    if (moves && to.optimizer != Place::kDevice) optimizer_.move_to(to.optimizer, homes);
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) {
      const at::Device device = devices_.at(to.device_of(layer));
      parameters_.relocate(model_.first_of(layer), model_.count_of(layer), device);
      optimizer_.relocate(model_.first_of(layer), model_.count_of(layer), device);
    }
    parameters_.leave_devices(to.parameters, to.gradients, homes);  // the peer of a layer's new device
    parameters_.come_to_devices(to.parameters, to.gradients, homes);
    parameters_.reserve();
    reserve_messages(to);
    if (from.placement != to.placement) pipeline_->placement_changed();
    // On a peer, those of layers that have another device now.
    const bool follows = to.optimizer == Place::kPeer && (moves || from.placement != to.placement);
    if (follows || (moves && to.optimizer == Place::kDevice)) optimizer_.move_to(to.optimizer, homes);
    optimizer_.set_update_slots(update_slots(to));
  });
}

void TrainingStep::offer_moves(const Plan& plan, const std::vector<Plan>& refused) {
  moves_.update(plan, refused);
}

void TrainingStep::offer_no_move() {
  moves_.offer_nothing();
}

void TrainingStep::release_caches() {
  if (devices_[0].is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
}

void TrainingStep::plan_changed(uint64_t step, const Plan& from, const Plan& to, uint64_t incident,
                                const std::string& reason) {
  core_.plan_changed(step, hash(from), hash(to), incident, reason.c_str());
}

void TrainingStep::restore_evaluation() {
  agreement_.begin(step_);
  messages_.begin();
  evaluation_losses_.clear();
  evaluated_ = 0;
}

void TrainingStep::begin_evaluation() {
  restore_evaluation();
  moves_.evaluating(true);
}

void TrainingStep::end_evaluation() {
  moves_.evaluating(false);
}

std::optional<Failure> TrainingStep::evaluate(const Plan& plan) {
  const uint32_t rows = zero_ < 3 ? replicas_->share_of(config_.evaluation.windows).count
                                  : replicas_->largest_share_of(config_.evaluation.windows);
  evaluation_batch_ = plan.evaluation_batch;
  for (; evaluated_ < rows; evaluated_ += plan.evaluation_batch) {
    auto failure = guarded("evaluation", [&] {
      if (evaluated_ == 0) follow_messages(plan);
      const at::Tensor sums = evaluate_rows(evaluated_, plan);
      if (!sums.defined()) return;  // the last stage has them
      const float* sum = sums.const_data_ptr<float>();
      evaluation_losses_.insert(evaluation_losses_.end(), sum, sum + sums.numel());
    });
    if (failure) return failure->can_be_repeated = zero_ < 3, failure;
  }
  const double mine = std::accumulate(evaluation_losses_.begin(), evaluation_losses_.end(), 0.0);
  evaluation_loss_ = agreement_.evaluation(mine) / double(targets_in(evaluation_rows_));
  return std::nullopt;
}

at::Tensor TrainingStep::trained_weight(size_t index) {
  if (optimizer_.has_masters()) return whole_states_.of(index, 0);
  return whole_states_.asks_for(index) ? whole_states_.stored(index, 0) : optimizer_.weights(index);
}

std::vector<std::string> TrainingStep::remarks() const {
  std::vector<std::string> all = optimizer_.remarks();
  for (std::string& remark : parameters_.remarks()) all.push_back(std::move(remark));
  for (std::string& remark : activations_->remarks()) all.push_back(std::move(remark));
  return all;
}

double TrainingStep::loss() const {
  return loss_ / double(targets_);
}

}  // namespace spillway::trainer
