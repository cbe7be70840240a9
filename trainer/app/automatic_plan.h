// What the devices have left and achieve at a run's start, and the plan that a run begins with: the fastest
// that fits them where `plan.automatic` is true, the largest micro-batch that does where it is "auto".
//
// Thread-safety: one thread. Errors: where no plan fits, the one that lacks least, and `text` says so.
#pragma once
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/libtorch.h"
#include "trainer/runtime/core.h"
#include "trainer/runtime/rates.h"

namespace spillway::trainer {

struct Survey {
  Machine machine;  // with what `from` says of its rates
  RatesFrom from = RatesFrom::kNoCard;
};

// Before anything is allocated. On a simulated card only the room is looked for, and only where a plan needs
// it.
Survey survey(const Config& config, const Machine& machine, const std::vector<at::Device>& devices,
              const Core& core);

// What each device has left for a training, once its context is there. Empty: nobody knows.
std::vector<uint64_t> bytes_for_training(const std::vector<at::Device>& devices, const Core& core);

struct AutomaticPlan {
  Plan plan;
  std::string text;  // a line: what was chosen, and why
};

// `shape`: of this rank.
AutomaticPlan choose_plan(const Config& config, const Shape& shape, const Survey& survey);

}  // namespace spillway::trainer
