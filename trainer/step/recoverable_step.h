// One optimizer step that survives running out of memory.
//
// A step draws one batch, splits it into micro-batches as the plan says, accumulates their gradients and
// commits once. When an allocation fails and cannot be served in place, the stack unwinds to here, and only
// then, outside any catch block, is room made: a move to a neighbouring plan. Then
//   - after a bit-exact move only the failed micro-batch is redone, from the random state that it began with,
//   and its
//     gradients go only to the parameters that have not had them yet;
//   - after any other move the whole step is undone and redone, so that its result is that of a run which had
//   the new
//     plan from this step on.
// With no move left the step is tried once more as it is (unwinding itself frees memory, and what was short
// may have been another's); after that it gives up: `StepOutcome::kGaveUp`, with the program's state as it
// was before the step.
//
// Of several ranks each recovers by itself as long as the others need not do anything again. Where they have
// to, or where a rank gives up, it asks them (trainer/ranks/agreement/word.h): all undo the step, and begin
// it anew or give it up together.
//
// Thread-safety: one thread. Ownership: borrows the program. Errors: an allocation failure is a value
// (`Failure`); every other exception of the program passes through. Nothing here allocates device memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/plan.h"
#include "trainer/ranks/agreement/ranks_of_step.h"

namespace spillway::trainer {

// Names one try of one step of this rank. Ranks that have agreed to begin a step anew have the same attempt
// then; what a rank recovers by itself raises its own.
struct StepKey {
  uint64_t step = 0;
  uint32_t attempt = 0;
  uint64_t plan_hash = 0;
};

struct Failure {
  std::string text;                // what the allocator said
  std::string phase;               // "forward", "backward", "optimizer", "evaluation", "plan"
  std::optional<MoveKind> chosen;  // by the ladder, if one ran
  uint64_t incident = 0;           // the report's key, 0 without Spillway's allocator
  uint32_t device = 0;             // that is short of memory, as the plan numbers them
  bool step_can_restart = true;    // false: not without the other ranks, which have what it made already
  bool can_be_repeated = true;     // false: nothing of it without the others, which gather weights for it
  bool needs_a_move = true;        // false: the same plan has what it needs now
};

// The step that is made recoverable. A function that returns a failure must have released what it allocated.
class StepProgram {
 public:
  virtual ~StepProgram() = default;

  virtual void begin(const StepKey& key) = 0;  // for the trace
  // The undo log: random state and data cursor, on the host. `save_step` draws the batch and sets gradients
  // to zero.
  virtual void save_step() = 0;
  virtual void restore_step() = 0;  // also drops the accumulated gradients
  virtual void save_micro_batch(uint32_t micro_batch) = 0;
  virtual void restore_micro_batch(uint32_t micro_batch) = 0;  // keeps what was accumulated

  // All ranks begin it anew.
  virtual void restore_evaluation() {}

  virtual uint32_t micro_batches(const Plan& plan) const = 0;
  virtual std::optional<Failure> run_micro_batch(uint32_t micro_batch, const Plan& plan) = 0;
  // All of the commit that may allocate, without an effect: the gradients' norm, tiles.
  virtual std::optional<Failure> prepare_commit() = 0;
  // Clipping, optimizer, schedule. Allocates no device memory, so that it cannot be cut off half-way.
  virtual void commit() = 0;
  // Moves what the plan places. A failure leaves a state that computes the same, with some tensors moved.
  virtual std::optional<Failure> adopt(const Plan& from, const Plan& to) = 0;
  // From now on a failure may choose a move from `plan`, but none to a plan that was refused.
  virtual void offer_moves(const Plan& plan, const std::vector<Plan>& refused) = 0;
  virtual void offer_no_move() = 0;
  // Frees what can be freed without a plan: caches.
  virtual void release_caches() = 0;
  virtual void plan_changed(uint64_t step, const Plan& from, const Plan& to, uint64_t incident,
                            const std::string& reason) = 0;
  // That make the step with this one; null: it is alone.
  virtual RanksOfStep* ranks() { return nullptr; }
};

struct RecoveryOptions {
  Guarantee floor = Guarantee::kNumericallyEqual;  // weakest that the run accepts
  uint32_t attempts = 24;                          // of one step
  uint64_t grow_back_after = 0;      // quiet steps before an earlier plan is tried again; 0: never
  double grow_back_headroom = 0.05;  // of the limit, that must stay free by the estimate
};

enum class StepOutcome : uint8_t { kDone, kGaveUp };

// What was done about one failure, for the table at the end.
struct RecoveryRecord {
  uint64_t step = 0;
  uint32_t attempt = 0;
  std::string phase, action;  // the move's name, "try_again" or "give_up"
  Guarantee guarantee{};
  uint64_t incident = 0, bytes_predicted = 0,
           microseconds = 0;         // from the failure until the work was resumed
  Plan plan;                         // after it
  std::string reason;                // what the allocator said
  std::optional<AskedUndo> asked{};  // all ranks have undone the step for it
};

class RecoverableStep {
 public:
  RecoverableStep(StepProgram& program, const Shape& shape, const Machine& machine, const Plan& plan,
                  const RecoveryOptions& options);

  StepOutcome run(uint64_t step);
  // Has the other ranks give up this step as well, for want of memory for `why`.
  void give_up(uint64_t step, const std::string& why);
  // Evaluation or anything else that has no gradients: tried until it returns no failure.
  using Work = std::optional<Failure> (*)(void* context, const Plan& plan);
  StepOutcome run_evaluation(uint64_t step, Work work, void* context);

  // Changes the plan before `step`, as a schedule says. False with the failure's text when there is no room
  // for it.
  bool follow(uint64_t step, const Plan& plan, std::string* error);
  // After a quiet step: goes back to the plan before the last move when the estimate leaves head-room under
  // `limit_bytes` (0: unknown, never). A failure soon after makes it wait twice as long the next time.
  void maybe_grow_back(uint64_t step, uint64_t limit_bytes);

  const Plan& plan() const { return plan_; }
  const std::vector<RecoveryRecord>& records() const { return records_; }
  const std::string& last_failure() const { return last_failure_; }
  // Of the step that was given up last: "no plan is left", "no plan is left on rank 1".
  const std::string& why_it_ended() const { return why_it_ended_; }
  Guarantee guarantee_held() const { return held_; }
  // The rank for whose lack of memory all have given up; nothing where this one is alone, or nobody has.
  std::optional<uint32_t> rank_that_gave_up() const { return gave_up_; }

 private:
  enum class Resume : uint8_t { kMicroBatch, kStep, kTogether, kNever };

  void begin_attempts();
  Resume together(uint64_t step, bool evaluating);
  Word word(uint64_t step, Word::Says says) const;
  void adopt_common(uint64_t step, bool evaluating, const Decision& decision);
  void record(uint64_t step, const Decision& decision);
  Resume recover(Failure failure, uint64_t step, bool evaluating);
  // False when there was no room to carry it out; then `failure` is that.
  bool take(const Move& move, uint64_t step, Failure* failure, RecoveryRecord* record);
  SharedWork shared_work() const;
  bool concerns_this_rank(const Move& move, const Failure& failure) const;
  const Move* choose(const std::vector<Move>& moves, const Failure& failure, bool evaluating) const;
  template <typename Open>
  const Move* best(const std::vector<Move>& moves, const Failure& failure, bool evaluating,
                   const Open& open) const;
  std::optional<Failure> run_micro_batches(uint32_t* next);

  StepProgram& program_;
  const Shape shape_;
  const Machine machine_;
  const RecoveryOptions options_;
  Plan plan_;
  std::vector<Plan> earlier_;  // the plans that moves left, to grow back to
  std::vector<Plan> refused_;  // by adoption, during this step
  std::vector<RecoveryRecord> records_;
  std::string last_failure_, why_it_ended_;
  Guarantee held_ = Guarantee::kBitExact;
  uint32_t attempt_ = 0;
  bool tried_again_ = false;
  Word word_;              // of this rank's last failure, in this step
  size_t own_record_ = 0;  // of that failure
  std::optional<uint32_t> gave_up_;
  uint64_t quiet_steps_ = 0, wait_steps_ = 0;
  bool just_grown_ = false;
};

}  // namespace spillway::trainer
