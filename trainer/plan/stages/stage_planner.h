// The planner of a pipeline over ranks: one plan for all stages, of which each has its part.
//
// Each stage's own fastest plan comes first. All then have the smallest micro-batch of these, because stages
// pass each other micro-batches; with it each recomputes as few layers as it can. The plan of all has what
// one of them needs. A step takes as long as its slowest stage.
//
// Thread-safety: pure functions. Errors: no plan that fits all stages is an empty `planned.best`. Units:
// bytes, seconds.
#pragma once
#include <vector>

#include "trainer/plan/planner.h"

namespace spillway::trainer {

struct StagedPlan {
  std::vector<uint32_t> layers{};   // of each stage
  std::vector<Candidate> stages{};  // the plan on each of them
  uint32_t slowest = 0;
  Planned planned{};  // of the slowest one, whose step is that of all
};

// `shape`: of one replica, of whichever stage; the others are as in find_plan.
StagedPlan find_staged_plan(Shape shape, const Machine& machine, Guarantee floor, const Plan& from,
                            const std::vector<uint32_t>& layers);

}  // namespace spillway::trainer
