// A plan inside a larger TOML document.
#pragma once
#include "spillway/trainer/plan/plan.h"
#include "trainer/plan/strict_table.h"

namespace spillway::trainer {

// Reads the plan's keys of `table` over `plan`. Errors stay in `table`.
void read_plan(StrictTable& table, uint32_t layers, Plan* plan);

}  // namespace spillway::trainer
