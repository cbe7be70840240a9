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

}  // namespace

std::string fault_of_stages(const Config& config) {
  const RunConfig& run = config.run;
  if (run.stages == 1)
    return run.stage_layers.empty()
               ? ""
               : "'run.stage_layers' is of the stages of a pipeline: write run.stages too";
  const std::string fault = fault_of_stages(config.model, config.train.numerics, run.zero, run.stages);
  if (!fault.empty()) return "'run.stages'" + fault;
  return fault_of_layers(config);
}

}  // namespace spillway::trainer
