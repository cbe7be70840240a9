#include "tools/spillway/plan/stages/meshes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr uint32_t kStagesOfZero = 4;

uint32_t stages_in(const Workload& workload) {
  return uint32_t(std::max<size_t>(1, workload.stage_layers.size()));
}

// A pipeline's replicas have no more than ZeRO-1 (fault_of_stages), and one replica shares with nobody.
uint32_t stages_of_zero(uint32_t ranks, uint32_t stages) {
  if (ranks <= stages) return 1;
  return stages > 1 ? 2 : kStagesOfZero;
}

// What all cards of a mesh have of its plan: of a pipeline's stages the most.
struct MeshNeeds {
  bool fits = false;
  trainer::Candidate candidate{};
  uint64_t device_bytes = 0, host_bytes = 0, lacking_bytes = 0;
};

std::vector<trainer::Candidate> cards_of(const PlanReport& report) {
  if (report.staged != nullptr) return report.staged->stages;
  return {report.planned.best ? *report.planned.best : report.planned.alternatives.front()};
}

MeshNeeds needs_of(const PlanReport& report) {
  const std::vector<trainer::Candidate> cards = cards_of(report);
  MeshNeeds needs{.fits = report.planned.best.has_value(),
                  .candidate = cards[report.staged != nullptr ? report.staged->slowest : 0]};
  for (const trainer::Candidate& card : cards) {
    needs.device_bytes = std::max(needs.device_bytes, card.most_device_bytes());
    needs.host_bytes = std::max(needs.host_bytes, card.host_bytes);
    needs.lacking_bytes = std::max(needs.lacking_bytes, card.lacking_bytes + card.lacking_host_bytes);
  }
  return needs;
}

}  // namespace

std::vector<RankOptions> meshes_of(const RankOptions& options, const Workload& workload) {
  const uint32_t configured = stages_in(workload);
  std::vector<RankOptions> meshes{options};
  if (options.any_stages) {
    meshes.clear();
    for (uint32_t stages = 1; stages <= options.ranks; ++stages)
      if (options.ranks % stages == 0)
        meshes.emplace_back(options).stages = stages == configured ? std::nullopt : std::optional(stages);
  }
  if (!options.any_zero) return meshes;
  std::vector<RankOptions> all;
  for (const RankOptions& mesh : meshes)
    for (uint32_t zero = 0; zero < stages_of_zero(mesh.ranks, mesh.stages.value_or(configured)); ++zero)
      all.emplace_back(mesh).zero = zero;
  return all;
}

std::string mesh_text(const RankOptions& mesh, const Workload& workload) {
  const uint32_t stages = mesh.stages.value_or(stages_in(workload));
  return count_text(stages, "stage", "stages") + (mesh.zero ? ", ZeRO " + std::to_string(*mesh.zero) : "");
}

size_t best_mesh(const std::vector<PlanReport>& reports) {
  const auto rank_of = [](const PlanReport& report) {
    const MeshNeeds needs = needs_of(report);
    return std::tuple(!needs.fits, needs.fits ? 0 : needs.lacking_bytes,
                      -tokens_per_second(report.workload, needs.candidate));
  };
  return size_t(std::ranges::min_element(reports, {}, rank_of) - reports.begin());
}

std::string meshes_text(const std::vector<PlanReport>& reports, size_t best) {
  using enum Align;
  Table table({kLeft, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kLeft});
  table.add({"", "stages", "replicas", "ZeRO", "micro-batch", "each GPU", "host", "tokens/s", "limit"});
  for (size_t i = 0; i < reports.size(); ++i) {
    const Workload& workload = reports[i].workload;
    const MeshNeeds needs = needs_of(reports[i]);
    table.add({i == best ? "→" : "", std::to_string(stages_in(workload)),
               std::to_string(workload.shape.ranks), std::to_string(workload.shape.zero),
               std::to_string(needs.candidate.plan.micro_batch), size_text(needs.device_bytes),
               needs.host_bytes ? size_text(needs.host_bytes) : "-",
               tokens_text(tokens_per_second(workload, needs.candidate)),
               needs.fits ? needs.candidate.time.limit() : "lacks " + size_text(needs.lacking_bytes)});
  }
  return table.text("");
}

nlohmann::ordered_json meshes_json(const std::vector<PlanReport>& reports) {
  auto meshes = nlohmann::ordered_json::array();
  for (const PlanReport& report : reports) {
    const MeshNeeds needs = needs_of(report);
    meshes.push_back({{"stages", stages_in(report.workload)},
                      {"replicas", report.workload.shape.ranks},
                      {"zero", report.workload.shape.zero},
                      {"plan", to_string(needs.candidate.plan)},
                      {"fits", needs.fits},
                      {"device_peak_bytes", needs.device_bytes},
                      {"lacking_bytes", needs.lacking_bytes},
                      {"tokens_per_second", tokens_per_second(report.workload, needs.candidate)}});
  }
  return meshes;
}

}  // namespace spillway::tools
