// What the planner found, for people, programs, browsers and the trainer.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/spillway/plan/gpu.h"
#include "tools/spillway/plan/workload.h"
#include "trainer/plan/planner.h"
#include "trainer/plan/stages/stage_planner.h"

namespace spillway::tools {

struct PlanReport {
  const Workload& workload;
  const Gpu& gpu;
  const trainer::Machine& machine;
  const trainer::Planned& planned;
  const trainer::StagedPlan* staged = nullptr;  // where ranks are stages; `planned` is of the slowest one
};

// Of all ranks.
double tokens_per_second(const Workload& workload, const trainer::Candidate& candidate);
std::string tokens_text(double tokens);

// `rows`: at most so many of the alternatives.
std::string planned_text(const PlanReport& report, size_t rows);
// A row a card with its best plan, or with the one that lacks least.
std::string cards_text(const std::vector<PlanReport>& reports);
// `meshes`: all that it was chosen from, as data.
std::string planned_json(const PlanReport& report, const nlohmann::ordered_json& meshes);
std::string planned_svg(const PlanReport& report, size_t rows);

// "zero = 1\nstages = 2\nstage_layers = [6, 6]", of [run]; "" where ranks are neither stages nor share by
// ZeRO.
std::string run_of_mesh(const Workload& workload);
// A configuration of spillway-train with the best plan. REQUIRES: there is one. Errors: of reading the
// configuration that the model came from.
std::string planned_toml(const PlanReport& report, std::string* error);

}  // namespace spillway::tools
