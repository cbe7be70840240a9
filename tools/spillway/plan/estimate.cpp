#include "tools/spillway/plan/estimate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/spillway/look.h"
#include "tools/spillway/plan/picture.h"
#include "tools/spillway/plan/stages/stages.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::tools {
namespace {

constexpr size_t kBarCells = 24;

uint64_t largest_item(const trainer::Estimate& needed) {
  uint64_t most = 0;
  for (const trainer::EstimateItem& item : needed.items) most = std::max(most, item.bytes);
  return most;
}

void add_items(const trainer::Estimate& needed, const std::string& place, uint64_t sum, Table* table) {
  std::string shown = place;
  for (const trainer::EstimateItem& item : needed.items) {
    if (item.place() != place) continue;
    table->add({std::exchange(shown, ""), item.name, size_text(item.bytes), share_text(item.bytes, sum),
                bar_text(item.bytes, largest_item(needed), kBarCells)});
  }
}

std::string sent_text(const Workload& workload, const trainer::Estimate& needed) {
  if (workload.shape.ranks < 2) return "";
  return "\nA rank sends " + size_text(needed.sent_bytes) + " to the others in a step.\n";
}

std::string items_of_text(const trainer::StagedPlan& staged) {
  return "\n" + stages_text(staged) + "\nThe items are those of stage " + std::to_string(staged.slowest) +
         ", which needs most.\n";
}

nlohmann::ordered_json items_json(const trainer::Estimate& needed) {
  auto items = nlohmann::ordered_json::array();
  for (const trainer::EstimateItem& item : needed.items)
    items.push_back({{"place", item.place()}, {"name", item.name}, {"bytes", item.bytes}});
  return items;
}

}  // namespace

std::string estimate_text(const Workload& workload, const trainer::Estimate& needed,
                          const trainer::StagedPlan& staged) {
  using enum Align;
  Table table({kLeft, kLeft, kRight, kRight, kLeft});
  for (uint32_t device = 0; device < needed.device_peak_bytes.size(); ++device) {
    const uint64_t peak = needed.device_peak_bytes[device];
    add_items(needed, "device " + std::to_string(device), peak, &table);
    table.add({"", "peak of a step", size_text(peak), "100%", ""});
    table.add({"", "peak of an evaluation", size_text(needed.evaluation_peak_bytes[device]), "", ""});
  }
  add_items(needed, "host", needed.host_bytes, &table);
  add_items(needed, "NVMe", needed.nvme_bytes, &table);
  return workload_text(workload) + "\nplan: " + to_string(workload.plan) + "\n\n" + table.text("  ") +
         sent_text(workload, needed) +
         "\nNot counted: the CUDA context and libraries, rounding and fragmentation of the allocator.\n" +
         (staged.layers.empty() ? "" : items_of_text(staged));
}

std::string estimate_json(const Workload& workload, const trainer::Estimate& needed,
                          const trainer::StagedPlan& staged) {
  using Json = nlohmann::ordered_json;
  const trainer::Architecture& model = workload.shape.model;
  const Json json = {{"spillway_estimate", 1},
                     {"model",
                      {{"name", workload.name},
                       {"family", name_of(model.family)},
                       {"parameters", trainer::parameter_count(model)},
                       {"context_tokens", model.context}}},
                     {"batch", workload.shape.batch},
                     {"plan", to_string(workload.plan)},
                     {"stage", staged.layers.empty() ? Json(nullptr) : Json(staged.slowest)},
                     {"stages", needs_json(staged)},
                     {"items", items_json(needed)},
                     {"device_peak_bytes", needed.device_peak_bytes},
                     {"evaluation_peak_bytes", needed.evaluation_peak_bytes},
                     {"host_bytes", needed.host_bytes},
                     {"nvme_bytes", needed.nvme_bytes},
                     {"sent_bytes", needed.sent_bytes}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string estimate_svg(const Workload& workload, const trainer::Estimate& needed) {
  std::vector<SvgBar> bars;
  bars.reserve(needed.device_peak_bytes.size() + 1);
  for (uint32_t device = 0; device < needed.device_peak_bytes.size(); ++device)
    bars.push_back({"device " + std::to_string(device),
                    size_text(needed.device_peak_bytes[device]) + " at the peak of a step",
                    {},
                    0});
  const size_t host = bars.size();
  if (needed.host_bytes > 0) bars.push_back({"host", size_text(needed.host_bytes), {}, 0});
  if (needed.nvme_bytes > 0) bars.push_back({"NVMe", size_text(needed.nvme_bytes), {}, 0});
  for (const trainer::EstimateItem& item : needed.items)
    bars[item.nvme   ? bars.size() - 1
         : item.host ? host
                     : item.device]
        .pieces.push_back({item.name, item.bytes});
  return bars_svg(workload_text(workload), bars);
}

}  // namespace spillway::tools
