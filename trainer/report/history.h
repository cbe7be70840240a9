// What a run was, step by step, in a size that does not grow with the number of steps.
//
// Neighbouring steps are merged as they become many: of what is measured the most is kept, of losses the
// mean. The estimate of each plan that steps ran under stands beside it.
//
// Thread-safety: one thread adds; another one may read while it holds the history. Ownership: values. Errors:
// none. Units: bytes, seconds, nats per token.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "trainer/plan/estimate.h"
#include "trainer/plan/plan.h"
#include "trainer/ranks/agreement/word.h"

namespace spillway::trainer {

struct DevicePeaks {
  uint64_t live = 0, reserved = 0;  // the most during a step
  uint64_t limit = 0;
};

// As they were at any number of moments: no more than kMost, evenly spread.
class Sample {
 public:
  void add(double value);
  double median() const;  // 0 of none
  bool empty() const { return values_.empty(); }

 private:
  static constexpr size_t kMost = 2048;
  std::vector<double> values_;
  uint64_t seen_ = 0, every_ = 1;
};

// A plan, and the steps that ran under it.
struct PlanUse {
  Plan plan;
  Estimate estimate;
  uint64_t steps = 0, tokens = 0;    // tokens: that the losses of the steps are of
  Sample seconds;                    // of steps that met no failure
  std::vector<DevicePeaks> devices;  // the most of all its steps; empty where nothing is measured
};

// Steps `first` to `last`.
struct StepPoint {
  uint64_t first = 0, last = 0;
  size_t plan = 0;  // the one of them that is estimated to need most
  double loss = 0, least_loss = 0, most_loss = 0;
  double seconds = 0;
  std::vector<DevicePeaks> devices;  // by number; empty where nothing is measured
};

struct PlanMove {
  uint64_t step = 0;
  std::string action;  // the move's name, "try_again", "give_up", "schedule" or "grow_back"
  std::string phase;   // that ran out of memory; "" where none did
  uint64_t incident = 0;
  std::string reason;  // what the allocator said
  Plan to;
  std::optional<AskedUndo> asked{};  // all ranks have undone the step for it
};

struct EvaluationPoint {
  uint64_t step = 0;  // steps before it
  double loss = 0;
};

class RunHistory {
 public:
  static constexpr size_t kMostPoints = 400, kMostMoves = 200;

  struct Step {
    uint64_t number = 0;
    Plan plan;
    double loss = 0, seconds = 0;
    uint64_t tokens = 0;      // that the loss is of
    bool undisturbed = true;  // no failure, and the plan is that of the step before
    std::vector<DevicePeaks> devices{};
  };

  // `rates`: of the machine that the estimates are for.
  void begin(const Shape& shape, const Machine& rates, const Plan& plan);
  bool begun() const { return !plans_.empty(); }
  void add(const Step& step);
  void add(PlanMove move);
  void add(const EvaluationPoint& evaluation);

  const Shape& shape() const { return shape_; }
  const Machine& rates() const { return rates_; }
  // The first one, those that steps ran under, and one that a step gave up under; in this order.
  const std::vector<PlanUse>& plans() const { return plans_; }
  const std::vector<StepPoint>& points() const { return points_; }
  const std::vector<PlanMove>& moves() const { return moves_; }  // the first ones, and the last
  uint64_t all_moves() const { return all_moves_; }
  // Of them those that other ranks' failures led to, and left this one's plan.
  uint64_t moves_of_others() const { return moves_of_others_; }
  std::vector<EvaluationPoint> evaluations() const;  // evenly spread, and the last
  // Arithmetic of a step without what is computed again.
  double operations() const;

  // For another thread: nothing is added while what this returns lives. Null where that is not to be had
  // within a second.
  std::shared_ptr<void> hold() const;

 private:
  using Lock = Mutex<LockOrder::kLeaf>;
  size_t use_of(const Plan& plan);
  uint64_t estimated(size_t plan) const;
  StepPoint merged(const StepPoint& a, const StepPoint& b) const;

  Shape shape_;
  Machine rates_;
  std::vector<PlanUse> plans_;
  std::vector<StepPoint> points_;
  uint64_t steps_a_point_ = 1;
  std::vector<PlanMove> moves_;
  uint64_t all_moves_ = 0, moves_of_others_ = 0;
  std::vector<EvaluationPoint> evaluations_;
  std::optional<EvaluationPoint> last_evaluation_;
  uint64_t seen_evaluations_ = 0, every_evaluation_ = 1;
  std::shared_ptr<Lock> lock_ = std::make_shared<Lock>();  // while something is added
};

}  // namespace spillway::trainer
