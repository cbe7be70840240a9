// `spillway plan`: the fastest plan of a training that fits a card, and what else there is.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/spillway/command.h"
#include "tools/spillway/input_file.h"
#include "tools/spillway/plan/planned.h"
#include "tools/spillway/plan/ranks.h"
#include "tools/spillway/plan/stages/meshes.h"
#include "tools/spillway/rehearse/options.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kRows = 12;

struct PlanOptions {
  WorkloadOptions workload;
  RankOptions ranks;
  std::string gpu, host, floor, toml, svg;
  uint32_t gpus = 1;
  bool json = false, all = false;
};

int write_files(const PlanOptions& options, const PlanReport& report, size_t rows) {
  std::string error;
  if (!options.svg.empty()) error = write_output(options.svg, planned_svg(report, rows));
  if (!error.empty()) return fail(kUnwritable, "plan: --svg: " + error);
  if (options.toml.empty() || !report.planned.best) return kSuccess;
  const std::string text = planned_toml(report, &error);
  if (text.empty()) return fail(kUnreadableTrace, "plan: " + error);
  error = write_output(options.toml, text);
  return error.empty() ? kSuccess : fail(kUnwritable, "plan: --toml: " + error);
}

// The best of several meshes, behind a table of these.
int show(const PlanOptions& options, const std::vector<PlanReport>& meshes, const std::string& left_out) {
  const size_t best = best_mesh(meshes);
  const PlanReport& report = meshes[best];
  const size_t rows = options.all ? report.planned.alternatives.size() : kRows;
  const std::string chosen_from = options.ranks.is_open() ? meshes_text(meshes, best) + left_out + "\n" : "";
  std::fputs(
      (options.json ? planned_json(report, meshes_json(meshes)) : chosen_from + planned_text(report, rows))
          .c_str(),
      stdout);
  const int code = write_files(options, report, rows);
  return code != kSuccess ? code : report.planned.best ? kSuccess : kDoesNotFit;
}

// What a plan is made for: a card, and the machine that several of it are.
struct PlanTarget {
  Gpu gpu;
  trainer::Machine machine;
  Workload workload;  // of several stages: of the slowest one
  trainer::Planned planned{};
  std::optional<trainer::StagedPlan> staged{};

  void find() {
    if (workload.stage_layers.empty()) {
      planned = find_plan(workload.shape, machine, workload.floor, workload.plan);
      return;
    }
    staged = find_staged_plan(workload.shape, machine, workload.floor, workload.plan, workload.stage_layers);
    planned = staged->planned;
    workload.shape.stage = trainer::stage_of(staged->layers, staged->slowest);
  }
  PlanReport report() const { return {workload, gpu, machine, planned, staged ? &*staged : nullptr}; }
};

std::string read_targets(const PlanOptions& options, const Workload& workload,
                         std::vector<PlanTarget>* targets) {
  std::optional<uint64_t> host;
  if (!options.host.empty()) {
    host = parse_size(options.host);
    if (!host) return "--host-memory: '" + options.host + "' is not " + kSizesAccepted;
  }
  const Words names = split_list(options.gpu);
  for (const std::string& name : names.empty() ? Words{options.gpu} : names) {
    std::string error;
    const auto gpu = find_gpu(name, &error);
    if (!gpu) return "--gpu: " + error;
    targets->push_back({*gpu, machine_of(*gpu, options.gpus, workload.shape.numerics.precision), workload});
    targets->back().machine.host_bytes = host.value_or(0);
    targets->back().machine.rank_links = links_of(*gpu, options.ranks);
  }
  const bool as_files = options.json || !options.toml.empty() || !options.svg.empty();
  if (names.size() < 2 || !(as_files || options.ranks.is_open())) return "";
  return std::string(options.ranks.is_open() ? "--stages auto and --zero auto" : "--json, --toml and --svg") +
         " are for one card, and --gpu names several";
}

std::vector<PlanReport> find_all(std::vector<PlanTarget>* targets) {
  std::vector<PlanReport> reports;
  for (PlanTarget& target : *targets) {
    target.find();
    reports.push_back(target.report());
  }
  return reports;
}

int show_cards(const std::vector<PlanReport>& reports) {
  std::fputs(cards_text(reports).c_str(), stdout);
  const bool all_fit =
      std::ranges::all_of(reports, [](const PlanReport& report) { return report.planned.best.has_value(); });
  return all_fit ? kSuccess : kDoesNotFit;
}

std::string fault_of_mesh(const PlanOptions& options, const RankOptions& mesh, Workload* workload) {
  std::string fault = share_among_ranks(mesh, workload);
  if (!fault.empty() || options.gpus == 1 || workload->stage_layers.empty()) return fault;
  return "--gpus: each rank of a pipeline's stages has one";
}

// A target for each card, of each way in which the ranks can share the model. `left_out` has a line for each
// way that there is not.
std::string find_targets(const PlanOptions& options, const Workload& workload,
                         std::vector<PlanTarget>* targets, std::string* left_out) {
  std::string first_fault;
  for (const RankOptions& mesh : meshes_of(options.ranks, workload)) {
    Workload shared = workload;
    std::string fault = fault_of_mesh(options, mesh, &shared);
    if (fault.empty()) {
      if (fault = read_targets(options, shared, targets); !fault.empty()) return fault;
      continue;
    }
    *left_out += "left out: " + mesh_text(mesh, workload) + ": " + fault + "\n";
    if (first_fault.empty()) first_fault = std::move(fault);
  }
  return targets->empty() ? first_fault : "";
}

int run_plan(const PlanOptions& options) {
  int code = kSuccess;
  std::string error = check_outputs({{"--toml", options.toml}, {"--svg", options.svg}});
  if (!error.empty()) return fail(kUnwritable, "plan: " + error);
  error = overwritten_input({options.workload.model}, {{"--toml", options.toml}, {"--svg", options.svg}});
  if (!error.empty()) return fail(kUsageError, "plan: " + error);
  auto workload = read_workload(options.workload, &code, &error);
  if (!workload) return fail(code, "plan: " + error);
  std::vector<PlanTarget> targets;
  if (!options.floor.empty())
    workload->floor =
        options.floor == "bit_exact" ? trainer::Guarantee::kBitExact : trainer::Guarantee::kNumericallyEqual;
  std::string left_out;
  error = find_targets(options, *workload, &targets, &left_out);
  if (!error.empty()) return fail(kUsageError, "plan: " + error);
  const std::vector<PlanReport> reports = find_all(&targets);
  return split_list(options.gpu).size() > 1 ? show_cards(reports) : show(options, reports, left_out);
}

std::function<int()> declare_plan(CLI::App& app, const Words&) {
  auto options = std::make_shared<PlanOptions>();
  declare_workload(app, &options->workload);
  app.add_option("--gpu", options->gpu,
                 "The card, such as a100-40gb or 4090, or how much memory a training may use of one, such as "
                 "20GiB; several with commas: the best plan of each")
      ->required();
  app.add_option("--gpus", options->gpus, "Cards of that kind in one process (1)")->check(CLI::Range(1, 16));
  declare_ranks(app, &options->ranks, true);
  declare_links(app, &options->ranks);
  app.add_option("--host-memory", options->host,
                 std::string("Memory of the host that a training may use (any): ") + kSizesAccepted);
  app.add_option(
         "--floor", options->floor,
         "bit_exact: both batches stay as they are; numerically_equal (default, or the configuration's)")
      ->check(CLI::IsMember({"bit_exact", "numerically_equal"}));
  app.add_flag("--all", options->all, "Every alternative, not only the first ones");
  app.add_flag("--json", options->json, "All of it as data");
  app.add_option("--toml", options->toml,
                 "Write a configuration of spillway-train with the plan to this file");
  app.add_option("--svg", options->svg, "Write a picture of the alternatives to this file");
  return [options] { return run_plan(*options); };
}

}  // namespace

Command plan_command() {
  return {"plan", "Find the fastest plan of a training that fits a card", "spillway plan --gpu 4090 gpt2-xl",
          false, declare_plan};
}

}  // namespace spillway::tools
