#include "tools/spillway/plan/stages/stages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

std::string lacks(const trainer::Candidate& candidate) {
  if (candidate.lacking_bytes > 0) return "lacks " + size_text(candidate.lacking_bytes);
  return candidate.lacking_host_bytes > 0
             ? "lacks " + size_text(candidate.lacking_host_bytes) + " of host memory"
             : "";
}

std::string layers_text(const trainer::Stage& stage) {
  const std::string first = std::to_string(stage.first);
  return stage.end == stage.first + 1 ? first : first + " to " + std::to_string(stage.end - 1);
}

}  // namespace

std::string stages_text(const trainer::StagedPlan& staged) {
  using enum Align;
  Table table({kRight, kLeft, kRight, kRight, kRight, kLeft});
  table.add({"stage", "layers", "under way", "each GPU", "a step", ""});
  for (uint32_t number = 0; number < staged.stages.size(); ++number) {
    const trainer::Stage stage = trainer::stage_of(staged.layers, number);
    const trainer::Candidate& one = staged.stages[number];
    table.add({std::to_string(number), layers_text(stage), std::to_string(stage.most_under_way()),
               size_text(one.most_device_bytes()), duration_text(uint64_t(1e6 * one.time.seconds())),
               lacks(one)});
  }
  return table.text("");
}

nlohmann::ordered_json stages_json(const trainer::StagedPlan& staged) {
  auto all = nlohmann::ordered_json::array();
  for (uint32_t number = 0; number < staged.stages.size(); ++number) {
    const trainer::Stage stage = trainer::stage_of(staged.layers, number);
    const trainer::Candidate& one = staged.stages[number];
    all.push_back({{"first_layer", stage.first},
                   {"layers", stage.end - stage.first},
                   {"device_peak_bytes", one.most_device_bytes()},
                   {"host_bytes", one.host_bytes},
                   {"fits", one.fits()},
                   {"step_us", uint64_t(1e6 * one.time.seconds())}});
  }
  return all;
}

nlohmann::ordered_json needs_json(const trainer::StagedPlan& staged) {
  auto all = stages_json(staged);
  for (auto& stage : all)
    for (const char* key : {"fits", "step_us"}) stage.erase(key);
  return all;
}

trainer::StagedPlan stages_of(trainer::Shape shape, const std::vector<uint32_t>& layers,
                              const trainer::Machine& machine, const trainer::Plan& plan) {
  trainer::StagedPlan staged{.layers = layers};
  for (uint32_t number = 0; number < layers.size(); ++number) {
    shape.stage = trainer::stage_of(layers, number);
    const trainer::Estimate needed = estimate(shape, plan, machine);
    trainer::Candidate one{
        .plan = plan, .device_bytes = {}, .host_bytes = needed.host_bytes, .time = needed.time};
    one.device_bytes = {std::max(needed.device_peak_bytes[0], needed.evaluation_peak_bytes[0])};
    staged.stages.push_back(std::move(one));
  }
  const auto most = std::ranges::max_element(staged.stages, {}, &trainer::Candidate::most_device_bytes);
  staged.slowest = uint32_t(most - staged.stages.begin());
  return staged;
}

}  // namespace spillway::tools
