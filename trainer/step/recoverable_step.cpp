#include "trainer/step/recoverable_step.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "trainer/plan/ranks/same_sequence.h"

namespace spillway::trainer {
namespace {

uint64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

bool redoes_the_step(const Move& move) {
  return move.guarantee != Guarantee::kBitExact && move.kind != MoveKind::kSplitEvaluation;
}

// The split of the evaluation changes no training result.
Guarantee of_training(const Move& move) {
  return move.kind == MoveKind::kSplitEvaluation ? Guarantee::kBitExact : move.guarantee;
}

uint64_t bytes_of(const Move& move, bool evaluating) {
  return evaluating ? move.evaluation_bytes_freed : move.bytes_freed;
}

}  // namespace

RecoverableStep::RecoverableStep(StepProgram& program, const Shape& shape, const Machine& machine,
                                 const Plan& plan, const RecoveryOptions& options)
    : program_(program),
      shape_(shape),
      machine_(machine),
      options_(options),
      plan_(normalised(plan)),
      wait_steps_(options.grow_back_after) {}

std::optional<Failure> RecoverableStep::run_micro_batches(uint32_t* next) {
  for (const uint32_t count = program_.micro_batches(plan_); *next < count; ++*next) {
    program_.save_micro_batch(*next);
    if (auto failure = program_.run_micro_batch(*next, plan_)) return failure;
  }
  return program_.prepare_commit();
}

void RecoverableStep::begin_attempts() {
  attempt_ = 0;
  tried_again_ = false;
  gave_up_.reset();
  if (refused_.empty()) return;
  refused_.clear();
  program_.offer_moves(plan_, refused_);
}

StepOutcome RecoverableStep::run(uint64_t step) {
  begin_attempts();
  program_.begin({step, attempt_, hash(plan_)});
  program_.save_step();
  RanksOfStep* const ranks = program_.ranks();
  uint32_t next = 0;
  while (true) {
    const auto failure = run_micro_batches(&next);
    if (!failure && !(ranks && ranks->undo_is_asked())) break;
    word_ = word(step, Word::Says::kFollows);
    Resume resume = failure ? recover(*failure, step, false) : Resume::kTogether;
    if (ranks && resume >= Resume::kTogether) resume = together(step, false);
    if (resume == Resume::kNever) {
      program_.restore_step();
      return StepOutcome::kGaveUp;
    }
    program_.begin({step, attempt_, hash(plan_)});
    if (resume == Resume::kStep) {
      program_.restore_step();
      next = 0;
    } else if (next < program_.micro_batches(plan_)) {
      program_.restore_micro_batch(next);
    }
  }
  program_.commit();
  ++quiet_steps_;
  return StepOutcome::kDone;
}

StepOutcome RecoverableStep::run_evaluation(uint64_t step, Work work, void* context) {
  begin_attempts();
  RanksOfStep* const ranks = program_.ranks();
  while (true) {
    const auto failure = work(context, plan_);
    if (!failure && !(ranks && ranks->undo_is_asked())) return StepOutcome::kDone;
    word_ = word(step, Word::Says::kFollows);
    Resume resume = failure ? recover(*failure, step, true) : Resume::kTogether;
    if (resume < Resume::kTogether) continue;
    if (ranks) resume = together(step, true);
    if (resume >= Resume::kTogether) return StepOutcome::kGaveUp;
    program_.restore_evaluation();
  }
}

template <typename Open>
const Move* RecoverableStep::best(const std::vector<Move>& moves, const Failure& failure, bool evaluating,
                                  const Open& open) const {
  if (failure.chosen)
    for (const Move& move : moves)
      if (move.kind == *failure.chosen && open(move)) return &move;
  // No ladder chose (another allocator, or one that gave up): the strongest guarantee first, then the
  // cheapest.
  const Move* best = nullptr;
  const auto rank = [](const Move& move) { return std::tie(move.guarantee, move.cost_us); };
  for (const Move& move : moves)
    if (open(move) && bytes_of(move, evaluating) > 0 && (!best || rank(move) < rank(*best))) best = &move;
  return best;
}

SharedWork RecoverableStep::shared_work() const {
  return program_.ranks() ? program_.ranks()->shared_work() : SharedWork{};
}

// Whether the other ranks need not do anything again, nor otherwise.
bool RecoverableStep::concerns_this_rank(const Move& move, const Failure& failure) const {
  return failure.can_be_repeated && (failure.step_can_restart || !redoes_the_step(move)) &&
         same_sequence(plan_, move.to, shared_work());
}

// A move that needs the other ranks comes behind all that do not.
const Move* RecoverableStep::choose(const std::vector<Move>& moves, const Failure& failure,
                                    bool evaluating) const {
  const auto open = [&](const Move& move) {
    return std::find(refused_.begin(), refused_.end(), move.to) == refused_.end();
  };
  const auto alone = [&](const Move& move) { return open(move) && concerns_this_rank(move, failure); };
  if (const Move* move = best(moves, failure, evaluating, alone)) return move;
  return program_.ranks() ? best(moves, failure, evaluating, open) : nullptr;
}

bool RecoverableStep::take(const Move& move, uint64_t step, Failure* failure, RecoveryRecord* record) {
  // A failure on the way chooses among the other moves.
  refused_.push_back(move.to);
  program_.offer_moves(plan_, refused_);
  if (auto refusal = program_.adopt(plan_, move.to)) {
    last_failure_ = refusal->text;
    refusal->step_can_restart = failure->step_can_restart;
    refusal->can_be_repeated = failure->can_be_repeated;
    *failure = std::move(*refusal);
    program_.adopt(move.to, plan_);  // as far as there is room; either place computes the same
    return false;
  }
  refused_.pop_back();
  program_.plan_changed(step, plan_, move.to, failure->incident, move.name);
  earlier_.push_back(std::exchange(plan_, move.to));
  program_.offer_moves(plan_, refused_);
  record->action = move.name;
  record->guarantee = move.guarantee;
  held_ = std::max(held_, of_training(move));
  return true;
}

RecoverableStep::Resume RecoverableStep::recover(Failure failure, uint64_t step, bool evaluating) {
  const auto start = std::chrono::steady_clock::now();
  last_failure_ = failure.text;
  quiet_steps_ = 0;
  if (std::exchange(just_grown_, false)) wait_steps_ *= 2;
  RecoveryRecord record{.step = step,
                        .attempt = attempt_,
                        .phase = failure.phase,
                        .action = "give_up",
                        .guarantee = Guarantee::kBitExact,
                        .incident = failure.incident,
                        .plan = plan_,
                        .reason = failure.text};
  Resume resume = Resume::kNever;
  Guarantee to_training = Guarantee::kBitExact;
  const Plan before = plan_;
  why_it_ended_ = why_a_step_ends(attempt_ + 1, options_.attempts);
  if (++attempt_ < options_.attempts) {
    const std::vector<Move> moves = neighbours(plan_, shape_, machine_, options_.floor, failure.device);
    while (const Move* move = failure.needs_a_move ? choose(moves, failure, evaluating) : nullptr) {
      record.bytes_predicted = bytes_of(*move, evaluating);
      const bool alone = concerns_this_rank(*move, failure);
      if (!take(*move, step, &failure, &record)) continue;
      to_training = of_training(*move);
      resume = !alone ? Resume::kTogether : redoes_the_step(*move) ? Resume::kStep : Resume::kMicroBatch;
      break;
    }
    if (resume == Resume::kNever && (!failure.needs_a_move || !std::exchange(tried_again_, true))) {
      program_.release_caches();
      record.action = "try_again";
      record.bytes_predicted = 0;
      resume = failure.can_be_repeated ? Resume::kMicroBatch : Resume::kTogether;
    }
  }
  record.plan = plan_;
  record.microseconds = microseconds_since(start);
  word_ = word(step, resume == Resume::kNever ? Word::Says::kGivesUp : Word::Says::kAsks);
  word_.before = before, word_.guarantee = to_training, word_.action = record.action;
  word_.phase = record.phase, word_.reason = record.reason, word_.incident = record.incident;
  own_record_ = records_.size();
  records_.push_back(std::move(record));
  return resume;
}

bool RecoverableStep::follow(uint64_t step, const Plan& plan, std::string* error) {
  const Plan to = normalised(plan);
  if (to == plan_) {
    earlier_.clear();  // what is scheduled is where the run stays: it grows back to nothing before it
    return true;
  }
  program_.offer_no_move();
  const auto failure = program_.adopt(plan_, to);
  if (failure) {
    *error = failure->text;
    program_.adopt(to, plan_);
  } else {
    program_.plan_changed(step, plan_, to, 0, "schedule");
    plan_ = to;
    earlier_.clear();
  }
  program_.offer_moves(plan_, refused_);
  return !failure;
}

void RecoverableStep::maybe_grow_back(uint64_t step, uint64_t limit_bytes) {
  if (options_.grow_back_after == 0 || limit_bytes == 0 || earlier_.empty() || quiet_steps_ < wait_steps_)
    return;
  const Plan to = earlier_.back();
  if (!same_sequence(plan_, to, shared_work())) return;  // the others would have to as well
  const Estimate needed = estimate(shape_, to, machine_);
  const double allowed = double(limit_bytes) * (1 - options_.grow_back_headroom);
  for (const uint64_t peak : needed.device_peak_bytes)
    if (double(peak) > allowed) return;
  quiet_steps_ = 0;
  if (program_.adopt(plan_, to)) {
    program_.adopt(to, plan_);
    wait_steps_ *= 2;
    return;
  }
  program_.plan_changed(step, plan_, to, 0, "grow_back");
  plan_ = to;
  program_.offer_moves(plan_, refused_);
  earlier_.pop_back();
  just_grown_ = true;
}

}  // namespace spillway::trainer
