// `spillway estimate`: what a step of a training needs, item by item, without a device and without weights.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/plan/estimate.h"
#include "tools/spillway/plan/gpu.h"
#include "tools/spillway/plan/ranks.h"
#include "tools/spillway/plan/stages/stages.h"
#include "tools/spillway/plan/workload.h"
#include "tools/spillway/rehearse/report/output.h"

namespace spillway::tools {
namespace {

struct EstimateOptions {
  WorkloadOptions workload;
  std::string recompute, optimizer_place, svg;
  RankOptions ranks;
  bool json = false;
};

// "none", "all", or how many of the first layers.
bool read_recompute(const std::string& text, uint32_t layers, std::set<uint32_t>* recompute) {
  uint32_t count = text == "all" ? layers : 0;
  if (text != "all" && text != "none") {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size() || count > layers) return false;
  }
  recompute->clear();
  for (uint32_t layer = 0; layer < count; ++layer) recompute->insert(layer);
  return true;
}

std::string apply(const EstimateOptions& options, Workload* workload) {
  const uint32_t layers = workload->shape.layers();
  if (!options.recompute.empty() && !read_recompute(options.recompute, layers, &workload->plan.recompute))
    return "--recompute: '" + options.recompute + "' is neither none, all nor a number of layers up to " +
           std::to_string(layers);
  if (!options.optimizer_place.empty())
    workload->plan.optimizer = trainer::place_of(options.optimizer_place).value_or(workload->plan.optimizer);
  return "";
}

uint32_t devices_of(const trainer::Plan& plan) {
  uint32_t most = 0;
  for (const auto& [layer, device] : plan.placement) most = std::max(most, device);
  return most + 1;
}

int run_estimate(const EstimateOptions& options) {
  int code = kSuccess;
  std::string error = check_outputs({{"--svg", options.svg}});
  if (!error.empty()) return fail(kUnwritable, "estimate: " + error);
  auto workload = read_workload(options.workload, &code, &error);
  if (!workload) return fail(code, "estimate: " + error);
  if (error = apply(options, &*workload); !error.empty()) return fail(kUsageError, "estimate: " + error);
  if (error = share_among_ranks(options.ranks, &*workload); !error.empty())
    return fail(kUsageError, "estimate: " + error);
  const trainer::Machine machine{.devices = devices_of(workload->plan), .workspace_bytes = kProductWorkspace};
  std::string stages;
  if (!workload->stage_layers.empty()) {
    const trainer::StagedPlan staged =
        stages_of(workload->shape, workload->stage_layers, machine, workload->plan);
    workload->shape.stage = trainer::stage_of(workload->stage_layers, staged.slowest);
    stages = "\n" + stages_text(staged) + "\nThe items are those of stage " + std::to_string(staged.slowest) +
             ", which needs most.\n";
  }
  const auto needed = trainer::estimate(workload->shape, workload->plan, machine);
  std::fputs(
      (options.json ? estimate_json(*workload, needed) : estimate_text(*workload, needed) + stages).c_str(),
      stdout);
  if (options.svg.empty()) return kSuccess;
  error = write_output(options.svg, estimate_svg(*workload, needed));
  return error.empty() ? kSuccess : fail(kUnwritable, "estimate: --svg: " + error);
}

std::function<int()> declare_estimate(CLI::App& app, const Words&) {
  auto options = std::make_shared<EstimateOptions>();
  declare_workload(app, &options->workload);
  app.add_option(
      "--recompute", options->recompute,
      "Layers whose activations are computed again in the backward: none, all, or how many of the first");
  app.add_option("--optimizer-place", options->optimizer_place,
                 "Where what the optimizer keeps is: device, host or nvme")
      ->check(CLI::IsMember({"device", "host", "nvme"}));
  declare_ranks(app, &options->ranks);
  app.add_flag("--json", options->json, "The estimate as data");
  app.add_option("--svg", options->svg, "Write a picture of it to this file");
  return [options] { return run_estimate(*options); };
}

}  // namespace

Command estimate_command() {
  return {"estimate", "Say what a step of a training needs, item by item",
          "spillway estimate gpt2-xl --batch 8 --recompute all", false, declare_estimate};
}

}  // namespace spillway::tools
