// `spillway estimate`: what a step of a training needs, item by item, without a device and without weights.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>

#include "tools/spillway/command.h"
#include "tools/spillway/plan/estimate.h"
#include "tools/spillway/plan/gpu.h"
#include "tools/spillway/plan/workload.h"
#include "tools/spillway/rehearse/report/output.h"
#include "trainer/plan/parameters/partition.h"

namespace spillway::tools {
namespace {

struct EstimateOptions {
  WorkloadOptions workload;
  std::string recompute, optimizer_place, svg;
  uint32_t ranks = 1;
  std::optional<uint32_t> zero;
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

// Of the rank with most rows.
std::string share(const EstimateOptions& options, Workload* workload) {
  trainer::Shape& shape = workload->shape;
  if (options.ranks > shape.batch)
    return "--ranks: the batch has " + std::to_string(shape.batch) + " rows, fewer than " +
           std::to_string(options.ranks) + " ranks";
  if (options.zero.value_or(0) > 0 && options.ranks == 1)
    return "--zero: one rank has nobody to share with; say how many there are with --ranks";
  shape.batch = (shape.batch + options.ranks - 1) / options.ranks;
  shape.ranks = options.ranks;
  shape.zero = options.zero.value_or(shape.zero);
  workload->plan.micro_batch = std::min(workload->plan.micro_batch, shape.batch);
  if (shape.zero > 0 && !trainer::can_be_sharded(shape.numerics))
    return "--zero: the states of adafactor belong to whole matrices, and cannot be shared";
  if (shape.zero > 2 && shape.numerics.precision == trainer::Precision::kInt8)
    return "--zero: matrices in 8 bits have no shares; take --zero 2";
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
  if (error = share(options, &*workload); !error.empty()) return fail(kUsageError, "estimate: " + error);
  const auto needed =
      trainer::estimate(workload->shape, workload->plan,
                        {.devices = devices_of(workload->plan), .workspace_bytes = kProductWorkspace});
  std::fputs((options.json ? estimate_json(*workload, needed) : estimate_text(*workload, needed)).c_str(),
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
  app.add_option("--ranks", options->ranks, "Processes that share the batch: the estimate is of one (1)")
      ->check(CLI::Range(1u, 1u << 16));
  app.add_option(
         "--zero", options->zero,
         "As run.zero: with 1 they share what the optimizer keeps, with 2 gradients too, with 3 weights")
      ->check(CLI::Range(0u, 3u));
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
