#include "tools/spillway/plan/planned.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/spillway/command.h"
#include "tools/spillway/plan/picture.h"
#include "tools/spillway/plan/ranks.h"
#include "tools/spillway/plan/stages/stages.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"
#include "trainer/plan/choices.h"

namespace spillway::tools {
namespace {

using PlanJson = nlohmann::ordered_json;

constexpr size_t kFillCells = 16;

template <typename... Values>
std::string printed(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string share_text(size_t count, uint32_t layers) {
  return count == layers ? "all" : std::to_string(count) + " of " + std::to_string(layers);
}

// The plan of all stages names the layers of all: what is said is of one.
trainer::Plan on_stage(trainer::Plan plan, const trainer::Shape& shape) {
  for (const auto layers : {&trainer::Plan::recompute, &trainer::Plan::recompute_mlp,
                            &trainer::Plan::recompute_attention, &trainer::Plan::offload})
    plan.*layers = layers_here(plan.*layers, shape);
  return plan;
}

std::string recomputed_text(const trainer::Plan& plan, uint32_t layers) {
  if (!plan.recompute_mlp.empty()) return "MLP of " + share_text(plan.recompute_mlp.size(), layers);
  if (!plan.recompute_attention.empty())
    return "attention of " + share_text(plan.recompute_attention.size(), layers);
  if (plan.recompute.empty()) return "none";
  const std::string share = share_text(plan.recompute.size(), layers);
  return plan.recompute_segment > 1 ? share + ", by " + std::to_string(plan.recompute_segment) : share;
}

std::string recompute_text(const trainer::Plan& plan, uint32_t layers) {
  std::string text = recomputed_text(plan, layers);
  if (plan.offload.empty()) return text;
  const char* const to = plan.offload_to == trainer::Place::kNvme ? "NVMe" : "host";
  text += ", " + share_text(plan.offload.size(), layers) + " to " + to;
  return text;
}

uint32_t devices_in(const trainer::Plan& plan) {
  std::set<uint32_t> devices{0};
  for (const auto& [layer, device] : plan.placement) devices.insert(device);
  return uint32_t(devices.size());
}

std::string lacking_text(const trainer::Candidate& candidate) {
  if (candidate.lacking_bytes > 0) return "lacks " + size_text(candidate.lacking_bytes);
  return candidate.lacking_host_bytes > 0
             ? "lacks " + size_text(candidate.lacking_host_bytes) + " of host memory"
             : "";
}

std::string gpu_text(const PlanReport& report) {
  const trainer::Machine& machine = report.machine;
  return printed("%u × %s: %s of %s usable, %.0f TFLOPS, memory %.0f GB/s, host %.0f GB/s", machine.devices,
                 report.gpu.name.c_str(), size_text(machine.device_bytes).c_str(),
                 size_text(report.gpu.capacity_bytes).c_str(), machine.flops / 1e12,
                 machine.memory_bytes_per_second / 1e9, machine.host_bytes_per_second / 1e9);
}

std::string note_of(const PlanReport& report) {
  return note_on(report.gpu, report.workload.shape.numerics.precision);
}

std::string note_line(const PlanReport& report) {
  const std::string note = note_of(report);
  return note.empty() ? "" : report.gpu.id + ": " + note + "\n";
}

Words row_of(const PlanReport& report, const trainer::Candidate& candidate) {
  const trainer::Shape& shape = report.workload.shape;
  const bool is_best = report.planned.best && candidate.plan == report.planned.best->plan;
  return {is_best ? "→" : "",
          std::to_string(candidate.plan.micro_batch),
          recompute_text(on_stage(candidate.plan, shape), shape.layers()),
          candidate.plan.head_chunks > 1 ? std::to_string(candidate.plan.head_chunks) + " chunks" : "whole",
          candidate.plan.update_on_host ? "by host" : name_of(candidate.plan.optimizer),
          std::to_string(devices_in(candidate.plan)),
          size_text(candidate.most_device_bytes()),
          candidate.host_bytes ? size_text(candidate.host_bytes) : "-",
          tokens_text(tokens_per_second(report.workload, candidate)),
          candidate.fits() ? candidate.time.limit() : lacking_text(candidate),
          fill_text(candidate.most_device_bytes(), report.machine.device_bytes, kFillCells)};
}

std::string margin_text() {
  return printed(
      "\nA GPU's bytes are its peak with %.0f%% and %s kept free. Speeds are predicted, and were compared "
      "with no "
      "GPU.\n",
      100 * trainer::kPlannerMargin, size_text(trainer::kPlannerPages).c_str());
}

std::string parts_text(const trainer::StepTime& time) {
  const std::pair<const char*, double> parts[] = {
      {"compute", time.compute},     {"device memory", time.memory},
      {"launches", time.launches},   {"optimizer", time.optimizer},
      {"host link", time.host_link}, {"peer link", time.peer_link},
      {"streamed", time.streamed},   {"NVMe", time.nvme},
      {"ranks", time.ranks}};
  std::string text = duration_text(uint64_t(1e6 * time.seconds())) + " a step:";
  for (const auto& [name, seconds] : parts)
    if (seconds > 0.005 * time.seconds())
      text += printed("%s %s %.0f%%", text.ends_with(':') ? "" : ",", name, 100 * seconds / time.seconds());
  if (const double all = time.ranks + time.ranks_hidden; all > 0)
    text += printed("; ranks exchange for %s, %.0f%% of it hidden",
                    duration_text(uint64_t(1e6 * all)).c_str(), 100 * time.ranks_hidden / all);
  return text;
}

PlanJson time_json(const trainer::StepTime& time) {
  const auto microseconds = [](double seconds) { return uint64_t(1e6 * seconds); };
  return {{"total_us", microseconds(time.seconds())},
          {"compute_us", microseconds(time.compute)},
          {"device_memory_us", microseconds(time.memory)},
          {"launches_us", microseconds(time.launches)},
          {"optimizer_us", microseconds(time.optimizer)},
          {"host_link_us", microseconds(time.host_link)},
          {"peer_link_us", microseconds(time.peer_link)},
          {"streamed_us", microseconds(time.streamed)},
          {"nvme_us", microseconds(time.nvme)},
          {"ranks_us", microseconds(time.ranks)}};
}

PlanJson candidate_json(const PlanReport& report, const trainer::Candidate& candidate) {
  return {{"plan", to_string(candidate.plan)},
          {"fits", candidate.fits()},
          {"device_peak_bytes", candidate.device_bytes},
          {"host_bytes", candidate.host_bytes},
          {"lacking_bytes", candidate.lacking_bytes},
          {"lacking_host_bytes", candidate.lacking_host_bytes},
          {"tokens_per_second", tokens_per_second(report.workload, candidate)},
          {"step", time_json(candidate.time)},
          {"ranks_hidden_us", uint64_t(1e6 * candidate.time.ranks_hidden)},
          {"limit", candidate.time.limit()}};
}

}  // namespace

std::string tokens_text(double tokens) {
  return printed(tokens < 100 ? "%.1f" : "%.0f", tokens);
}

double tokens_per_second(const Workload& workload, const trainer::Candidate& candidate) {
  const double each = candidate.tokens_per_second(workload.shape);
  return workload.rows_of_all > 0 ? each * workload.rows_of_all / std::max(1u, workload.shape.batch) : each;
}

std::string planned_text(const PlanReport& report, size_t rows) {
  using enum Align;
  const std::vector<trainer::Candidate>& all = report.planned.alternatives;
  std::string text = workload_text(report.workload) + "\n" + gpu_text(report) + "\n" + note_line(report) +
                     ranks_text(report.workload, report.machine.rank_links) + "\n";
  Table table({kLeft, kRight, kLeft, kLeft, kLeft, kRight, kRight, kRight, kRight, kLeft, kLeft});
  table.add({"", "micro-batch", "recompute", "head", "optimizer", "GPUs", "each GPU", "host", "tokens/s",
             "limit", ""});
  const size_t shown = std::min(rows, all.size());
  for (size_t i = 0; i < shown; ++i) table.add(row_of(report, all[i]));
  text += table.text("");
  if (shown < all.size())
    text += "and " + count_text(all.size() - shown, "alternative", "alternatives") + " more (--all)\n";
  text += margin_text();
  if (report.staged)
    text += "\n" + stages_text(*report.staged) + "The alternatives above are those of stage " +
            std::to_string(report.staged->slowest) + ".\n";
  if (!report.planned.best) return text + "No plan fits.\n";
  const trainer::Candidate& best = *report.planned.best;
  const std::string mesh = run_of_mesh(report.workload), run = mesh.empty() ? "" : "[run]\n" + mesh + "\n\n";
  return text + parts_text(best.time) + "\n\n" + run + "[plan]\n" + to_toml(best.plan);
}

std::string cards_text(const std::vector<PlanReport>& reports) {
  using enum Align;
  Table table({kLeft, kRight, kLeft, kLeft, kLeft, kRight, kRight, kRight, kRight, kLeft, kLeft});
  table.add({"card", "micro-batch", "recompute", "head", "optimizer", "GPUs", "each GPU", "host", "tokens/s",
             "limit", ""});
  for (const PlanReport& report : reports) {
    Words row = row_of(report, report.planned.alternatives.front());
    row[0] = report.gpu.id;
    table.add(std::move(row));
  }
  std::string notes;
  for (const PlanReport& report : reports) notes += note_line(report);
  return workload_text(reports.front().workload) + "\n\n" + table.text("") + notes + margin_text();
}

std::string planned_json(const PlanReport& report, const nlohmann::ordered_json& meshes) {
  PlanJson alternatives = PlanJson::array();
  for (const trainer::Candidate& candidate : report.planned.alternatives)
    alternatives.push_back(candidate_json(report, candidate));
  const trainer::Machine& machine = report.machine;
  const PlanJson json = {
      {"spillway_plan", 1},
      {"model", report.workload.name},
      {"batch", report.workload.shape.batch},
      {"ranks", report.workload.all_ranks()},
      {"stages", report.staged ? stages_json(*report.staged) : PlanJson::array()},
      {"zero", report.workload.shape.zero},
      {"meshes", meshes},
      {"gpu", report.gpu.id},
      {"note", note_of(report)},
      {"gpus", machine.devices},
      {"usable_bytes", machine.device_bytes},
      {"operations_per_second", machine.flops},
      {"memory_bytes_per_second", machine.memory_bytes_per_second},
      {"host_bytes_per_second", machine.host_bytes_per_second},
      {"best", report.planned.best ? candidate_json(report, *report.planned.best) : PlanJson(nullptr)},
      {"alternatives", alternatives}};
  return json.dump(1, ' ', false, PlanJson::error_handler_t::replace) + "\n";
}

std::string planned_svg(const PlanReport& report, size_t rows) {
  std::vector<SvgBar> bars;
  for (const trainer::Candidate& candidate : report.planned.alternatives) {
    if (bars.size() == rows) break;
    const Words row = row_of(report, candidate);
    const uint64_t needs = candidate.most_device_bytes(), room = report.machine.device_bytes;
    std::vector<BarPiece> pieces{{"fits a GPU", std::min(needs, room)}};
    if (needs > room) pieces.push_back({"lacks", needs - room});
    bars.push_back({row[0] + (row[0].empty() ? "" : " ") + "batch " + row[1] + ", again " + row[2],
                    "head " + row[3] + ", moments " + row[4] + ", " + row[5] + " GPU, " + row[8] +
                        " tokens/s, " + row[9],
                    std::move(pieces), room});
  }
  return bars_svg(workload_text(report.workload) + "\n" + gpu_text(report), bars);
}

}  // namespace spillway::tools
