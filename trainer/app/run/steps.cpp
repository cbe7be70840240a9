#include "trainer/app/run/run.h"

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>

#include "trainer/app/run/corpus_sizes.h"
#include "trainer/optimizer/learning_rate.h"

namespace spillway::trainer {

uint64_t Run::smallest_limit() const {
  uint64_t least = 0;
  spillway_memory memory;
  for (size_t device = 0; device < devices_.size(); ++device)
    if (core_.query(int(device), &memory) && (least == 0 || memory.limit < least)) least = memory.limit;
  return least;
}

StepOutcome Run::run_step(uint64_t step) {
  peaks_.begin_step();
  const auto start = std::chrono::steady_clock::now();
  const StepOutcome outcome = recoverable_->run(step);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  recorder_.recovered(recoverable_->records());
  if (outcome == StepOutcome::kGaveUp) return outcome;
  ++results_.steps;
  results_.tokens += program_->targets();
  results_.seconds += seconds;
  const std::vector<spillway_memory> memory = peaks_.of_step();
  ranks_->works("the records of a step", step);
  recorder_.done({.number = step,
                  .loss = program_->loss(),
                  .gradient_norm = program_->gradient_norm(),
                  .learning_rate = learning_rate(config_.train, step),
                  .seconds = seconds,
                  .tokens = program_->targets(),
                  .plan = recoverable_->plan(),
                  .memory = memory,
                  .memory_of_run = peaks_.of_run(memory)});
  look_at_loss(step);
  return outcome;
}

// Once, and again in the verdict: such a run goes on, and learns nothing more.
void Run::look_at_loss(uint64_t step) {
  if (first_not_finite_ || std::isfinite(program_->loss())) return;
  first_not_finite_ = step;
  warn_of("step " + std::to_string(step) + ": the loss is not finite (" + std::to_string(program_->loss()) +
          "), and may not become so again: a lower train.learning_rate, a longer train.warmup or train.clip "
          "keeps a training from it");
}

bool Run::step_once() {
  const uint64_t step = program_->step();
  const Plan before = recoverable_->plan();
  std::string error;
  if (const auto entry = config_.schedule.find(step); entry != config_.schedule.end())
    if (!recoverable_->follow(step, entry->second, &error)) {
      program_->others_run(entry->second);
      recoverable_->give_up(step, "no room for the plan that the schedule has: " + error);
      return gave_up("in step " + std::to_string(step)), false;
    }
  if (recoverable_->plan() != before) recorder_.moved(step, "schedule", recoverable_->plan());
  if (run_step(step) == StepOutcome::kGaveUp) return gave_up("in step " + std::to_string(step)), false;
  const Plan ran = recoverable_->plan();
  recoverable_->maybe_grow_back(step, smallest_limit());
  if (recoverable_->plan() != ran) recorder_.moved(step + 1, "grow_back", recoverable_->plan());
  say_remarks();
  return true;
}

bool Run::evaluate() {
  program_->begin_evaluation();
  const auto outcome = recoverable_->run_evaluation(
      program_->step(),
      [](void* program, const Plan& plan) { return static_cast<TrainingStep*>(program)->evaluate(plan); },
      program_.get());
  program_->end_evaluation();
  recorder_.recovered(recoverable_->records());
  if (outcome == StepOutcome::kGaveUp) return gave_up("while evaluating"), false;
  results_.evaluation_loss = program_->evaluation_loss();
  results_.bits_per_byte = bits_per_byte(*results_.evaluation_loss, corpus_, config_.model);
  recorder_.evaluated(program_->step(), *results_.evaluation_loss, results_.unigram_entropy);
  return true;
}

// This process, or all ranks for the lack of memory of one of them: they have the same state, and the
// checkpoint of it.
void Run::gave_up(const std::string& where) {
  results_.ended_by = recoverable_->rank_that_gave_up();
  share_guarantee();
  end_with_checkpoint(kExitOutOfMemory, "out of memory " + where + " and " + recoverable_->why_it_ended() +
                                            ": " + recoverable_->last_failure());
}

// Where rank 0 cannot write it, all ranks end for that.
void Run::end_with_checkpoint(int code, const std::string& verdict) {
  const std::string fault = checkpoint() ? "" : results_.verdict;
  const std::string of_rank_0 = ranks_->decide(fault, [](const auto& of_ranks) { return of_ranks.at(0); });
  if (of_rank_0.empty()) return end(code, verdict);
  results_.ended_by = 0;
  end(kExitError, of_rank_0 + " (" + verdict + ")");
}

// Where all ranks end together: what one of them changed has changed the result of all.
void Run::share_guarantee() {
  const Guarantee mine = std::max(recoverable_->guarantee_held(), start_);
  std::array<double, 2> ranks{mine == Guarantee::kNumericallyEqual ? 1.0 : 0.0,
                              mine == Guarantee::kStatisticsChange ? 1.0 : 0.0};
  ranks_->add_up(ranks);
  if (ranks[0] > 0) of_ranks_ = Guarantee::kNumericallyEqual;
  if (ranks[1] > 0) of_ranks_ = Guarantee::kStatisticsChange;
}

void Run::await_signals() {
  if (options_.stop) options_.stop->is_awaited = true;
}

namespace {

struct SignalWeight {
  int signal;
  double of_a_rank;  // more than all ranks have of the next one
};
constexpr SignalWeight kSignals[] = {{SIGTERM, 0x1p40}, {SIGHUP, 0x1p20}, {SIGINT, 1}};

}  // namespace

double Run::weight_of_signal() const {
  const int mine = options_.stop ? options_.stop->signal.load() : 0;
  for (const SignalWeight& each : kSignals)
    if (each.signal == mine) return each.of_a_rank;
  return 0;
}

// All ranks end after the same step, the first whose vote or whose evaluation came behind the signal, and by
// the same one, whichever of them had it; 0: none has. Of several signals the first one of these is that of
// all.
int Run::signal_to_stop() const {
  const double weight = ranks_->is_alone() ? weight_of_signal() : program_->notices();
  for (const SignalWeight& each : kSignals)
    if (weight >= each.of_a_rank) return each.signal;
  return 0;
}

void Run::end_by(int signal) {
  const char* name = signal == SIGTERM ? " by SIGTERM" : signal == SIGHUP ? " by SIGHUP" : "";
  share_guarantee();
  ranks_->end_together();
  end_with_checkpoint(exit_code_of_signal(signal), "interrupted" + std::string(name) + " after step " +
                                                       std::to_string(program_->step() - 1));
}

void Run::train_steps() {
  await_signals();
  while (program_->step() < config_.train.steps) {
    if (!step_once()) return;
    const uint64_t step = program_->step();
    const bool last = step == config_.train.steps;
    if (!last && config_.evaluation.every && step % config_.evaluation.every == 0 && !evaluate()) return;
    if (config_.run.checkpoint_every && step % config_.run.checkpoint_every == 0) {
      share_guarantee();  // a checkpoint has that of all ranks
      if (!checkpoint()) return;
    }
    if (const int signal = signal_to_stop()) return end_by(signal);
  }
  if (!evaluate()) return;
  share_guarantee();
  end(kExitDone, "done");
}

}  // namespace spillway::trainer
