#include "trainer/config/plan_fault.h"

#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/tiles.h"

namespace spillway::trainer {
namespace {

std::string fault_of_tiles(const Numerics& numerics, const SharedWork& work, const std::string& section) {
  if (!can_tile(numerics))
    return "'" + section +
           ".tiles' is for matrices whose update needs no more than a tile: not for train.precision = "
           "\"int8\" nor "
           "train.optimizer = \"adafactor\"; write " +
           section + ".tiles = 1";
  if (work.zero > 1)
    return "'" + section +
           ".tiles' cuts matrices that one rank has whole, and with 'run.zero' from 2 on ranks have "
           "their layers together: write " +
           section + ".tiles = 1, or run.zero = 1";
  return "";
}

// A stage has several micro-batches under way on its one device.
std::string fault_of_stage(const Plan& plan, const std::string& section) {
  const auto says = [&](const char* what) {
    return "'" + section + "." + what + "' is not for 'run.stages' above 1: leave it out";
  };
  if (plan.parameters != Place::kDevice) return says("parameters");
  if (plan.gradients != Place::kDevice) return says("gradients");
  if (!plan.offload.empty()) return says("offload");
  if (!plan.placement.empty()) return says("devices");
  if (plan.tiles > 1) return says("tiles");
  if (plan.just_in_time) return says("update");
  if (plan.pipeline > 1) return says("pipeline");
  return "";
}

}  // namespace

std::string fault_of_plan(const Plan& plan, const Numerics& numerics, const SharedWork& work,
                          const std::string& section) {
  std::string fault = work.in_stages ? fault_of_stage(plan, section) : "";
  if (fault.empty() && plan.tiles > 1) fault = fault_of_tiles(numerics, work, section);
  if (fault.empty() && plan.update_on_host && !updates_at_once(numerics))
    fault =
        "'" + section +
        ".update_on' = \"host\" goes with train.optimizer = \"adamw\", \"adam\" or \"adamw8bit\", not with "
        "train.precision = \"int8\", and \"adamw8bit\" not with \"bf16\"; write " +
        section + ".update_on = \"device\"";
  return fault;
}

}  // namespace spillway::trainer
