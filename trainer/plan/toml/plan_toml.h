// A plan inside a larger TOML document.
#pragma once
#include "trainer/plan/device_map.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/toml/strict_table.h"

namespace spillway::trainer {

// What a configuration can leave to the run, which knows its devices.
struct PlanChoices {
  bool* micro_batch = nullptr;  // set to whether "micro_batch" is "auto"; nullptr where it must be a number
  DeviceSpread* spread = nullptr;  // set to how "devices" spreads the layers; nullptr where it must name them
  uint32_t decoder_layers = 0;     // of the layers: a table of devices is for those of both stacks
};

// Reads the plan's keys of `table` over `plan`. Errors stay in `table`.
void read_plan(StrictTable& table, uint32_t layers, Plan* plan, const PlanChoices& choices = {});

}  // namespace spillway::trainer
