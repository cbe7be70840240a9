#include "trainer/app/run/run.h"

#include <dlfcn.h>

#include "driver/simulator_control.h"
#include "trainer/app/run/corpus_sizes.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/pretrained/parameters.h"

namespace spillway::trainer {
namespace {

// False on a simulated card in null mode: kernels do nothing there and every read gives zeros.
bool values_are_computed() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return true;
  const auto control =
      reinterpret_cast<SpillwaySimulatorControlFunction>(::dlsym(driver, "spillway_simulator_control"));
  const bool computed = control == nullptr || control()->mode() == SPILLWAY_SIMULATOR_COMPUTE;
  ::dlclose(driver);
  return computed;
}

}  // namespace

// Each once: a device may be reached, and a program built, after the first step.
void Run::say_remarks() {
  for (const std::string& remark : program_->remarks())
    if (said_.insert(remark).second) warn_of(remark);
}

void Run::warn_of(const std::string& remark) {
  if (!remark.empty()) log_.say(LogLevel::kWarning, remark);
}

void Run::end(int code, std::string verdict) {
  results_.exit_code = code;
  results_.verdict = std::move(verdict);
  if (first_not_finite_ && (code == kExitDone || is_of_signal(code)))
    results_.verdict += "; the loss was not finite from step " + std::to_string(*first_not_finite_) + " on";
}

// What rank 0 does with states of which each rank may have a share: all ranks call it together.
bool Run::with_all_states(const std::function<bool()>& lead) {
  if (!ranks_->leads()) return program_->whole_states().serve(), true;
  const bool done = lead();
  program_->whole_states().end();
  return done;
}

Guarantee Run::guarantee_held() const {
  return std::max({recoverable_->guarantee_held(), start_, of_ranks_});
}

bool Run::checkpoint() {
  ranks_->works("a checkpoint", program_->step(), true);
  return with_all_states([this] { return write_checkpoint(); });
}

bool Run::write_checkpoint() {
  ranks_->works("a checkpoint", program_->step(), true);
  std::string error;
  const SavedPlan plan{.plan = recoverable_->plan(), .configured = configured_, .held = guarantee_held()};
  if (save_checkpoint(checkpoint_, config_, corpus_, *program_, plan, &error)) {
    results_.checkpoint = checkpoint_;
    log_.say(LogLevel::kDebug, "saved " + checkpoint_);
    return true;
  }
  end(kExitError, error);
  return false;
}

void Run::collect() {
  results_.values_computed = config_.run.device != "cuda" || values_are_computed();
  results_.last_loss = results_.steps ? program_->loss() : 0;
  ranks_->works("the hash of the weights", program_->step(), true);
  // Of one that ended in the middle of a step the others are not here.
  const bool all_are_here =
      results_.exit_code == kExitDone || is_of_signal(results_.exit_code) || results_.ended_by;
  if (all_are_here || !program_->whole_states().weights_are_exchanged())
    results_.weights_hash = program_->whole_states().hash();
  results_.skipped_steps = program_->loss_scale().state().skipped;
  results_.plan = recoverable_->plan();
  results_.guarantee_held = guarantee_held();
  results_.records = recoverable_->records();
  if (!core_.loaded()) return;
  results_.trace = core_.trace_path();
  results_.memory = peaks_.of_run(peaks_.of_step());
  size_t count = 0;
  core_.query_strategies(nullptr, 0, &count);
  results_.strategies.assign(count, {});
  for (spillway_strategy_counts& counts : results_.strategies) counts.size = sizeof counts;
  core_.query_strategies(results_.strategies.data(), count, &count);
}

// Those of the weights that it began with, or of its corpus: without them a text that is made never ends.
TextMarks Run::text_marks() const {
  if (!config_.pretrained.empty()) return text_marks_of(config_.pretrained, config_.model.vocabulary);
  const std::optional<int64_t>& end = corpus_.vocabulary().end;
  if (config_.model.family == Family::kT5 && !end) return {};
  return {.begin = std::vector<int64_t>(), .end = end ? std::vector<int64_t>{*end} : std::vector<int64_t>()};
}

bool Run::save_weights(std::string* error) {
  try {
    const auto weight = [this](size_t index) { return program_->trained_weight(index); };
    return save_parameters(config_.run.save, Model(config_.model), text_marks(), weight, error);
  } catch (const c10::Error& failure) {
    *error = failure.what_without_backtrace();
  } catch (const std::exception& failure) {
    *error = failure.what();
  }
  return false;
}

void Run::save() {
  if (config_.run.save.empty() || results_.exit_code != kExitDone) return;
  ranks_->works("the weights of run.save", program_->step(), true);
  with_all_states([this] {
    std::string error;
    if (save_weights(&error)) {
      log_.say(LogLevel::kInfo, "saved " + config_.run.save + " (config.json, model.safetensors)");
      return true;
    }
    if (write_checkpoint())
      end(kExitError, "the weights could not be saved, but a checkpoint holds them: " + error);
    return false;
  });
}

// That the replicas of each stage have the same weights, at the end as at the start.
void Run::check_replicas() {
  const std::string mine = std::to_string(program_->whole_states().hash_of_own());
  const auto fault_of = [this](const std::vector<std::string>& of_ranks) {
    for (uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
      const uint32_t first = mesh_.stage_of(rank) * mesh_.replicas()->size();
      if (of_ranks[rank] != of_ranks[first])
        return "rank " + std::to_string(first) + " and rank " + std::to_string(rank) +
               " do not go together: both have stage " + std::to_string(mesh_.stage_of(rank)) +
               ", and their weights differ";
    }
    return std::string();
  };
  const std::string fault = ranks_->decide(mine, fault_of);
  if (!fault.empty()) throw RanksError(fault);
}

void Run::leave_ranks() {
  if (results_.ended_by) {  // not before all are as far: who says why first would end the others
    ranks_->sum(0);
    ranks_->end_together();
  }
  if (results_.exit_code != kExitDone)
    return;  // the others have ended too, or the watch says why this one does
  // Where weights are exchanged the hash of all of them is rank 0's, on all ranks.
  std::string weights = "all " + std::to_string(results_.weights_hash);
  if (mesh_.has_stages())
    check_replicas(), check_twins();
  else if (program_->whole_states().weights_are_exchanged())
    weights += "\nthose of no layer " + std::to_string(program_->whole_states().hash_of_own());
  ranks_->check_same("weights", weights);
  ranks_->leave();
}

Results Run::run(RatesFrom* rates) {
  results_.out = config_.run.out;
  if (loss_is_of_text(config_.model)) results_.unigram_entropy = corpus_.unigram_entropy();
  build();
  *rates = survey_.from;
  begin();
  train_steps();
  collect();
  save();
  leave_ranks();
  if (!recorder_.healthy() && results_.exit_code == kExitDone)
    end(kExitError, "losses.txt or plan_schedule.toml could not be written to their end (disk full?)");
  return std::move(results_);
}

}  // namespace spillway::trainer
