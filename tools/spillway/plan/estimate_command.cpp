// `spillway estimate`: what a step of a training needs, item by item, without a device and without weights.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "tools/spillway/command.h"
#include "tools/spillway/input_file.h"
#include "tools/spillway/plan/estimate.h"
#include "tools/spillway/plan/gpu.h"
#include "tools/spillway/plan/ranks.h"
#include "tools/spillway/plan/stages/stages.h"
#include "tools/spillway/plan/workload.h"
#include "tools/spillway/rehearse/report/output.h"
#include "trainer/config/overrides.h"
#include "trainer/config/plan_fault.h"
#include "trainer/plan/devices/peers.h"

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
  return error.empty() ? fault_of_size(*workload) : error;
}

uint32_t devices_of(const trainer::Plan& plan) {
  uint32_t most = 0;
  for (const trainer::DeviceMap& map : {plan.placement, plan.peers})
    for (const auto& [from, device] : map) most = std::max(most, device);
  return most + 1;
}

// Of a run as it is described; 0: nothing says how many.
uint32_t devices_of_run(const EstimateOptions& options, const Workload& workload) {
  if (workload.all_ranks() > 1) return 1;
  return options.gpus > 0 ? options.gpus : workload.devices;
}

// A run knows its devices, and places what its plan does not.
std::string place(const EstimateOptions& options, Workload* workload, trainer::Machine* machine) {
  trainer::Plan& plan = workload->plan;
  const uint32_t devices = devices_of_run(options, *workload);
  const bool is_spread = workload->spread != trainer::DeviceSpread::kGiven;
  if (options.gpus > 1 && workload->all_ranks() > 1) return "--gpus: each of several ranks has one";
  if (devices == 0 && (is_spread || lacks_peers(plan)))
    return "the plan has layers or what they need on several GPUs: say how many there are with --gpus";
  if (is_spread) plan.placement.clear();
  if (devices != 0 && devices_of(plan) > devices)
    return "the plan names GPU " + std::to_string(devices_of(plan) - 1) + ", and the run has " +
           std::to_string(devices) + " (--gpus, run.devices; each of several ranks has one)";
  if (options.gpus > 1 && !is_spread && !lacks_peers(plan) && devices_of(plan) == 1)
    return "--gpus: the plan has everything on one GPU: spread its layers with --set plan.devices=even";
  machine->devices = std::max(1u, devices);
  if (is_spread) plan.placement = device_map(workload->spread, workload->shape, plan, *machine);
  choose_peers(&plan, workload->shape, *machine);
  machine->devices = devices_of(plan);
  return "";
}

int run_estimate(const EstimateOptions& options) {
  int code = kSuccess;
  std::string error = check_outputs({{"--svg", options.svg}});
  if (!error.empty()) return fail(kUnwritable, "estimate: " + error);
  error = overwritten_input({options.workload.model}, {{"--svg", options.svg}});
  if (!error.empty()) return fail(kUsageError, "estimate: " + error);
  auto workload = read_workload(options.workload, &code, &error);
  if (!workload) return fail(code, "estimate: " + error);
  if (error = apply(options, &*workload); !error.empty()) return fail(kUsageError, "estimate: " + error);
  error = share_among_ranks(options.ranks, &*workload);
  const trainer::SharedWork work{workload->shape.zero, !workload->stage_layers.empty()};
  if (error.empty()) error = fault_of_plan(workload->plan, workload->shape.numerics, work, "plan");
  if (!error.empty()) return fail(kUsageError, "estimate: " + error);
  trainer::Machine machine{.workspace_bytes = kProductWorkspace};
  if (error = place(options, &*workload, &machine); !error.empty())
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
                 "plan.key=value: a key of the trainer's [plan], such as plan.head_chunks=4; as often as "
                 "there are keys")
      ->allow_extra_args(false);
  app.add_option("--gpus", options->gpus,
                 "Cards of the run, over which plan.devices=even spreads the layers (run.devices)")
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
