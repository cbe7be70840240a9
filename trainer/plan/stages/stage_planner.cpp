#include "trainer/plan/stages/stage_planner.h"

#include <algorithm>

namespace spillway::trainer {
namespace {

// The fastest, or where none fits the one that lacks least.
const Candidate& first_of(const Planned& planned) {
  return planned.best ? *planned.best : planned.alternatives.front();
}

// The stage with the longest step; of those that do not fit, the one that lacks most.
uint32_t slowest_of(const std::vector<Candidate>& stages) {
  const auto order = [](const Candidate& one) {
    return std::pair(one.lacking_bytes + one.lacking_host_bytes, one.time.seconds());
  };
  const auto is_before = [&](const Candidate& one, const Candidate& other) {
    return order(one) < order(other);
  };
  return uint32_t(std::ranges::max_element(stages, is_before) - stages.begin());
}

}  // namespace

StagedPlan find_staged_plan(Shape shape, const Machine& machine, Guarantee floor, const Plan& from,
                            const std::vector<uint32_t>& layers) {
  const auto count = uint32_t(layers.size());
  StagedPlan found{.layers = layers};
  std::vector<Planned> own;
  for (uint32_t stage = 0; stage < count; ++stage) {
    shape.stage = stage_of(layers, stage);
    own.push_back(find_plan(shape, machine, floor, from));
  }
  Plan common = first_of(own.front()).plan;
  for (const Planned& one : own) {
    common.micro_batch = std::min(common.micro_batch, first_of(one).plan.micro_batch);
    common.evaluation_batch = std::min(common.evaluation_batch, first_of(one).plan.evaluation_batch);
  }
  std::optional<Plan> joined;
  for (uint32_t stage = 0; stage < count; ++stage) {
    shape.stage = stage_of(layers, stage);
    Plan plan = first_of(own[stage]).plan;
    plan.micro_batch = common.micro_batch, plan.evaluation_batch = common.evaluation_batch;
    const Planned again = find_plan(shape, machine, Guarantee::kBitExact, plan);
    if (again.best) plan = again.best->plan;
    joined = joined ? join(*joined, plan) : plan;
  }
  // An evaluation that is made smaller for one stage is so for all.
  for (uint32_t before = 0; joined->evaluation_batch != before;) {
    before = joined->evaluation_batch;
    found.stages.clear();
    for (uint32_t stage = 0; stage < count; ++stage) {
      shape.stage = stage_of(layers, stage);
      found.stages.push_back(candidate_of(shape, machine, floor, *joined));
      joined->evaluation_batch =
          std::min(joined->evaluation_batch, found.stages.back().plan.evaluation_batch);
    }
  }
  found.slowest = slowest_of(found.stages);
  found.planned = std::move(own[found.slowest]);
  std::vector<Candidate>& alternatives = found.planned.alternatives;
  if (found.planned.best) alternatives.erase(alternatives.begin());  // its own, which not all stages have
  found.planned.best.reset();
  if (!std::ranges::all_of(found.stages, &Candidate::fits)) return found;
  found.planned.best = found.stages[found.slowest];
  alternatives.insert(alternatives.begin(), *found.planned.best);
  return found;
}

}  // namespace spillway::trainer
