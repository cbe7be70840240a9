#include "tools/spillway/plan/stages/meshes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

uint32_t stages_in(const Workload& workload) {
  return uint32_t(std::max<size_t>(1, workload.stage_layers.size()));
}

bool has_replicas(const RankOptions& mesh) {
  return mesh.ranks > mesh.stages.value_or(1);
}

const trainer::Candidate& shown(const PlanReport& report) {
  return report.planned.best ? *report.planned.best : report.planned.alternatives.front();
}

}  // namespace

std::vector<RankOptions> meshes_of(const RankOptions& options) {
  std::vector<RankOptions> meshes{options};
  if (options.any_stages) {
    meshes.clear();
    for (uint32_t stages = 1; stages <= options.ranks; ++stages)
      if (options.ranks % stages == 0) meshes.emplace_back(options).stages = stages;
  }
  if (!options.any_zero) return meshes;
  std::vector<RankOptions> all;
  for (const RankOptions& mesh : meshes)
    for (uint32_t zero = 0; zero <= (has_replicas(mesh) ? 3 : 0); ++zero) all.emplace_back(mesh).zero = zero;
  return all;
}

size_t best_mesh(const std::vector<PlanReport>& reports) {
  const auto rank_of = [](const PlanReport& report) {
    const trainer::Candidate& candidate = shown(report);
    const uint64_t lacking = candidate.lacking_bytes + candidate.lacking_host_bytes;
    return std::tuple(!candidate.fits(), candidate.fits() ? 0 : lacking,
                      -tokens_per_second(report.workload, candidate));
  };
  return size_t(std::ranges::min_element(reports, {}, rank_of) - reports.begin());
}

std::string meshes_text(const std::vector<PlanReport>& reports, size_t best) {
  using enum Align;
  Table table({kLeft, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kLeft});
  table.add({"", "stages", "replicas", "ZeRO", "micro-batch", "each GPU", "host", "tokens/s", "limit"});
  for (size_t i = 0; i < reports.size(); ++i) {
    const Workload& workload = reports[i].workload;
    const trainer::Candidate& candidate = shown(reports[i]);
    table.add({i == best ? "→" : "", std::to_string(stages_in(workload)),
               std::to_string(workload.shape.ranks), std::to_string(workload.shape.zero),
               std::to_string(candidate.plan.micro_batch), size_text(candidate.most_device_bytes()),
               candidate.host_bytes ? size_text(candidate.host_bytes) : "-",
               tokens_text(tokens_per_second(workload, candidate)), limit_text(candidate)});
  }
  return table.text("");
}

nlohmann::ordered_json meshes_json(const std::vector<PlanReport>& reports) {
  auto meshes = nlohmann::ordered_json::array();
  for (const PlanReport& report : reports) {
    const trainer::Candidate& candidate = shown(report);
    meshes.push_back({{"stages", stages_in(report.workload)},
                      {"replicas", report.workload.shape.ranks},
                      {"zero", report.workload.shape.zero},
                      {"plan", to_string(candidate.plan)},
                      {"fits", candidate.fits()},
                      {"device_peak_bytes", candidate.most_device_bytes()},
                      {"tokens_per_second", tokens_per_second(report.workload, candidate)}});
  }
  return meshes;
}

}  // namespace spillway::tools
