// How a training's ranks can share a model: as stages of a pipeline, as replicas of each, and by a stage of
// ZeRO among these.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/spillway/plan/planned.h"
#include "tools/spillway/plan/ranks.h"

namespace spillway::tools {

// One entry for each combination of the numbers that are "auto", fewest stages first; without "auto" the
// options alone. The configuration's own stages keep their layers.
std::vector<RankOptions> meshes_of(const RankOptions& options, const Workload& workload);

// "4 stages, ZeRO 1"
std::string mesh_text(const RankOptions& mesh, const Workload& workload);

// The fastest one that fits; of those that do not, the one that lacks least. REQUIRES: there is one.
size_t best_mesh(const std::vector<PlanReport>& reports);

// A row a mesh, with its best plan, or with the one that lacks least.
std::string meshes_text(const std::vector<PlanReport>& reports, size_t best);
nlohmann::ordered_json meshes_json(const std::vector<PlanReport>& reports);

}  // namespace spillway::tools
