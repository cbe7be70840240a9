// The plan that a run begins with where `plan.automatic` is true: the fastest that fits, by what the devices
// have and what they achieve now.
//
// Thread-safety: one thread. Errors: where no plan fits, the one that lacks least, and `text` says so.
#pragma once
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/libtorch.h"
#include "trainer/runtime/core.h"

namespace spillway::trainer {

struct AutomaticPlan {
  Plan plan;
  std::string text;  // a line: what was chosen, and why
};

AutomaticPlan choose_plan(const Config& config, const Machine& machine,
                          const std::vector<at::Device>& devices, const Core& core);

}  // namespace spillway::trainer
