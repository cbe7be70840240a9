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
#include "trainer/config/overrides.h"
#include "trainer/plan/devices/peers.h"
#include "trainer/plan/parameters/tiles.h"

namespace spillway::tools {
namespace {

struct EstimateOptions {
  WorkloadOptions workload;
  std::string recompute, optimizer_place, svg;
  Words settings;  // "plan.key=value"
  RankOptions ranks;
  uint32_t gpus = 0;  // 0: those that the plan or the configuration names
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
  std::string error;
  override_plan(options.settings, workload->shape.model, &workload->plan, &workload->spread, &error);
  return error.empty() ? trainer::fault_of_tiles(workload->shape.numerics, workload->plan) : error;
}

uint32_t devices_of(const trainer::Plan& plan) {
  uint32_t most = 0;
  for (const trainer::DeviceMap& map : {plan.placement, plan.peers})
    for (const auto& [from, device] : map) most = std::max(most, device);
  return most + 1;
}

// What the plan leaves to the run, which knows its devices.
std::string choose_devices(const EstimateOptions& options, Workload* workload, trainer::Machine* machine) {
  trainer::Plan& plan = workload->plan;
  machine->devices = std::max({devices_of(plan), options.gpus, workload->devices});
  if (!workload->stage_layers.empty())
    return options.gpus > 1 ? "--gpus: each rank of a pipeline's stages has one" : "";
  if (workload->spread != trainer::DeviceSpread::kGiven) {
    if (machine->devices < 2)
      return "plan.devices spreads the layers over several GPUs: say how many with --gpus";
    plan.placement = device_map(workload->spread, workload->shape, plan, *machine);
  }
  trainer::choose_peers(&plan, workload->shape, *machine);
  machine->devices = devices_of(plan);
  return "";
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
  trainer::Machine machine{.workspace_bytes = kProductWorkspace};
  if (error = choose_devices(options, &*workload, &machine); !error.empty())
    return fail(kUsageError, "estimate: " + error);
  const trainer::StagedPlan staged =
      stages_of(workload->shape, workload->stage_layers, machine, workload->plan);
  if (!staged.layers.empty()) workload->shape.stage = trainer::stage_of(staged.layers, staged.slowest);
  const auto needed = trainer::estimate(workload->shape, workload->plan, machine);
  std::fputs(
      (options.json ? estimate_json(*workload, needed, staged) : estimate_text(*workload, needed, staged))
          .c_str(),
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
  app.add_option("--set", options->settings,
                 "plan.key=value: any key of the trainer's [plan], such as plan.head_chunks=4; as often as "
                 "there are keys")
      ->allow_extra_args(false);
  app.add_option("--gpus", options->gpus, "Cards that plan.devices spreads the layers over (run.devices)")
      ->check(CLI::Range(1, 16));
  declare_ranks(app, &options->ranks, false);
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
