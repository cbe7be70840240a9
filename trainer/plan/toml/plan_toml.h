// A plan inside a larger TOML document.
#pragma once
#include "trainer/plan/plan.h"
#include "trainer/plan/toml/strict_table.h"

namespace spillway::trainer {

// Reads the plan's keys of `table` over `plan`. `automatic_micro_batch`: whether "micro_batch" is "auto";
// nullptr where it must be a number. Errors stay in `table`.
void read_plan(StrictTable& table, uint32_t layers, Plan* plan, bool* automatic_micro_batch = nullptr);

}  // namespace spillway::trainer
