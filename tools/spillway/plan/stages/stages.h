// What each stage of a pipeline has of a plan, for people and programs.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/plan/stages/stage_planner.h"

namespace spillway::tools {

// A row a stage.
std::string stages_text(const trainer::StagedPlan& staged);
nlohmann::ordered_json stages_json(const trainer::StagedPlan& staged);
// Of each stage what it needs, where no card is known.
nlohmann::ordered_json needs_json(const trainer::StagedPlan& staged);
// The same of what `plan` needs, where nobody looks for another one.
trainer::StagedPlan stages_of(trainer::Shape shape, const std::vector<uint32_t>& layers,
                              const trainer::Machine& machine, const trainer::Plan& plan);

}  // namespace spillway::tools
