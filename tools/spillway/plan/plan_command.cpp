// `spillway plan`: the fastest plan of a training that fits a card, and what else there is.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/plan/planned.h"
#include "tools/spillway/rehearse/output.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kRows = 12;

struct PlanOptions {
  WorkloadOptions workload;
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

int show(const PlanOptions& options, const Workload& workload, const Gpu& gpu,
         const trainer::Machine& machine) {
  const trainer::Planned planned = find_plan(workload.shape, machine, workload.floor, workload.plan);
  const PlanReport report{workload, gpu, machine, planned};
  const size_t rows = options.all ? planned.alternatives.size() : kRows;
  std::fputs((options.json ? planned_json(report) : planned_text(report, rows)).c_str(), stdout);
  const int code = write_files(options, report, rows);
  return code != kSuccess ? code : planned.best ? kSuccess : kDoesNotFit;
}

int run_plan(const PlanOptions& options) {
  int code = kSuccess;
  std::string error = check_outputs({{"--toml", options.toml}, {"--svg", options.svg}});
  if (!error.empty()) return fail(kUnwritable, "plan: " + error);
  const auto gpu = find_gpu(options.gpu, &error);
  if (!gpu) return fail(kUsageError, "plan: --gpu: " + error);
  trainer::Machine machine = machine_of(*gpu, options.gpus);
  if (!options.host.empty()) {
    const auto bytes = parse_size(options.host);
    if (!bytes)
      return fail(kUsageError, "plan: --host-memory: '" + options.host + "' is not " + kSizesAccepted);
    machine.host_bytes = *bytes;
  }
  auto workload = read_workload(options.workload, &code, &error);
  if (!workload) return fail(code, "plan: " + error);
  if (!options.floor.empty())
    workload->floor =
        options.floor == "bit_exact" ? trainer::Guarantee::kBitExact : trainer::Guarantee::kNumericallyEqual;
  return show(options, *workload, *gpu, machine);
}

std::function<int()> declare_plan(CLI::App& app, const Words&) {
  auto options = std::make_shared<PlanOptions>();
  declare_workload(app, &options->workload);
  app.add_option(
         "--gpu", options->gpu,
         "The card, such as a100-40gb or 4090, or how much memory a training may use of one, such as 20GiB")
      ->required();
  app.add_option("--gpus", options->gpus, "Cards of that kind in one process (1)")->check(CLI::Range(1, 16));
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
