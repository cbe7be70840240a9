#include "trainer/config/stages.h"

#include <algorithm>
#include <numeric>

#include "trainer/plan/stages/stage.h"

namespace spillway::trainer {
namespace {

std::string fault_of_layers(const Config& config) {
  const RunConfig& run = config.run;
  const uint32_t layers = config.model.all_layers();
  if (run.stage_layers.empty()) return "";
  const uint64_t sum = std::accumulate(run.stage_layers.begin(), run.stage_layers.end(), uint64_t{0});
  if (run.stage_layers.size() != run.stages || sum != layers)
    return "'run.stage_layers' has " + std::to_string(sum) + " layers in " +
           std::to_string(run.stage_layers.size()) + " stages, and the model has " + std::to_string(layers) +
           " and 'run.stages' is " + std::to_string(run.stages);
  return "";
}

// A stage has several micro-batches under way on its one device.
std::string fault_of(const Plan& plan, const std::string& key) {
  const auto says = [&](const char* what) {
    return "'" + key + "." + what + "' is not for 'run.stages' above 1: leave it out";
  };
  if (plan.parameters != Place::kDevice) return says("parameters");
  if (plan.gradients != Place::kDevice) return says("gradients");
  if (!plan.offload.empty()) return says("offload");
  if (plan.tiles > 1) return says("tiles");
  if (plan.just_in_time) return says("update");
  if (plan.pipeline > 1) return says("pipeline");
  return "";
}

}  // namespace

std::string fault_of_stages(const Config& config) {
  const RunConfig& run = config.run;
  if (run.stages == 1)
    return run.stage_layers.empty()
               ? ""
               : "'run.stage_layers' is of the stages of a pipeline: write run.stages too";
  std::string fault = fault_of_stages(config.model, config.train.numerics, run.zero, run.stages);
  if (!fault.empty()) return "'run.stages'" + fault;
  fault = fault_of_layers(config);
  if (fault.empty()) fault = fault_of(config.plan, "plan");
  for (const auto& [step, plan] : config.schedule)
    if (fault.empty()) fault = fault_of(plan, "plan.schedule (step " + std::to_string(step) + ")");
  return fault;
}

}  // namespace spillway::trainer
