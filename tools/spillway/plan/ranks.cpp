#include "tools/spillway/plan/ranks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "base/command_line/option_checks.h"
#include "trainer/plan/parameters/partition.h"

namespace spillway::tools {
namespace {

constexpr double kBytesOfGigabit = 1e9 / 8;

// A number, or "auto" where `any` can say so.
void declare_number(CLI::App& app, const std::string& name, std::optional<uint32_t>* number, bool* any,
                    uint32_t least, uint32_t most, std::string text) {
  const auto read = [=](const std::string& said) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), value);
    const bool is_number = error == std::errc() && end == said.data() + said.size();
    return is_number && value >= least && value <= most ? std::optional(value) : std::nullopt;
  };
  if (any != nullptr) text += "; auto: whichever is fastest";
  const auto said = std::make_shared<std::string>();
  app.add_option(name, *said, text)
      ->check([=](const std::string& value) {
        if (read(value) || (any != nullptr && value == "auto")) return std::string();
        return "'" + value + "' is no number from " + std::to_string(least) + " to " + std::to_string(most) +
               (any != nullptr ? ", nor auto" : "");
      })
      ->each([=](const std::string& value) {
        *number = read(value);
        if (any != nullptr) *any = !*number;
        *said = value;
      });
}

}  // namespace

void declare_ranks(CLI::App& app, RankOptions* options, bool can_choose) {
  app.add_option("--ranks", options->ranks, "Processes that share the batch: what is said is of one (1)")
      ->check(CLI::Range(1u, 1u << 16));
  declare_number(
      app, "--zero", &options->zero, can_choose ? &options->any_zero : nullptr, 0, 3,
      "As run.zero: with 1 they share what the optimizer keeps, with 2 gradients too, with 3 weights");
  declare_number(app, "--stages", &options->stages, can_choose ? &options->any_stages : nullptr, 1, 1 << 16,
                 "As run.stages: the ranks are stages of a pipeline, and replicas of each (1)");
}

void declare_links(CLI::App& app, RankOptions* options) {
  app.add_option("--ranks-per-machine", options->per_machine, "Ranks on each machine (8)")
      ->check(CLI::Range(1u, 1u << 16));
  app.add_option("--network", options->network,
                 "Gbit/s of each rank's link to other machines (200, which is assumed)")
      ->check(number_between(0.1, 1e5));
}

std::string share_among_ranks(const RankOptions& options, Workload* workload) {
  trainer::Shape& shape = workload->shape;
  shape.zero = options.zero.value_or(shape.zero);
  const uint32_t stages =
      options.stages.value_or(uint32_t(std::max<size_t>(1, workload->stage_layers.size())));
  const uint32_t replicas = options.ranks / stages;
  const std::string stages_key = options.stages ? "--stages" : "run.stages";
  if (options.ranks % stages != 0)
    return stages_key + " is " + std::to_string(stages) + ", and " + std::to_string(options.ranks) +
           " rank(s) cannot be as many of each stage: say how many there are with --ranks";
  if (const std::string fault = fault_of_stages(shape.model, shape.numerics, shape.zero, stages);
      !fault.empty())
    return stages_key + fault;
  if (options.stages) workload->stage_layers.clear();
  if (options.stages && stages > 1) workload->stage_layers = trainer::balanced_layers(shape.model, stages);
  if (replicas > shape.batch)
    return "--ranks: the batch has " + std::to_string(shape.batch) + " rows, fewer than " +
           std::to_string(replicas) + (stages > 1 ? " ranks of each stage" : " ranks");
  if (options.zero.value_or(0) > 0 && options.ranks == 1)
    return "--zero: one rank has nobody to share with; say how many there are with --ranks";
  if (options.ranks == 1 && (options.per_machine || options.network))
    return std::string(options.per_machine ? "--ranks-per-machine" : "--network") +
           ": one rank has no links to others; say how many there are with --ranks";
  workload->rows_of_all = shape.batch;
  shape.batch = (shape.batch + replicas - 1) / replicas;
  shape.ranks = replicas;
  if (stages > 1) shape.stage = trainer::stage_of(workload->stage_layers, 0);
  trainer::Plan& plan = workload->plan;
  plan.micro_batch = std::min(plan.micro_batch, shape.batch);
  if (workload->evaluation_follows) plan.evaluation_batch = plan.micro_batch;
  const std::string key = options.zero ? "--zero" : "run.zero";
  if (shape.zero > 0 && !trainer::can_be_sharded(shape.numerics))
    return key + ": the states of adafactor belong to whole matrices, and cannot be shared";
  if (shape.zero > 2 && shape.numerics.precision == trainer::Precision::kInt8)
    return key + ": matrices in 8 bits have no shares; take stage 2";
  return "";
}

trainer::RankLinks links_of(const Gpu& gpu, const RankOptions& options) {
  trainer::RankLinks links;
  links.bytes_per_second = gpu.peer;
  links.protocols = trainer::nccl_ring_protocols(gpu.peer > gpu.host);
  links.ranks_per_machine = options.per_machine.value_or(links.ranks_per_machine);
  if (options.network) links.network_bytes_per_second = *options.network * kBytesOfGigabit;
  return links;
}

std::string ranks_text(const Workload& workload, const trainer::RankLinks& links) {
  const uint32_t ranks = workload.all_ranks();
  if (ranks < 2) return "";
  char text[256], stages[64] = "";
  if (!workload.stage_layers.empty())
    std::snprintf(stages, sizeof stages, " in %zu stages, %u of each,", workload.stage_layers.size(),
                  workload.shape.ranks);
  int length =
      std::snprintf(text, sizeof text, "%u ranks%s share %u rows a step, %.0f GB/s between two ranks", ranks,
                    stages, workload.rows_of_all, links.bytes_per_second / 1e9);
  if (links.machines(ranks) > 1)
    std::snprintf(text + length, sizeof text - size_t(length),
                  " of a machine; %u machines, %.0f GB/s a rank between machines", links.machines(ranks),
                  links.network_bytes_per_second / 1e9);
  return std::string(text) + "\n";
}

}  // namespace spillway::tools
