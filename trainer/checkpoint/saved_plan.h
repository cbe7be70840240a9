// What a checkpoint says of plans: the one that its step was committed under, the one that its run was
// configured with, and what moves between them have left of the results.
//
// Thread-safety: pure functions. Errors: texts.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "trainer/config/config.h"

namespace spillway::trainer {

// What a configuration says of the plan, whatever the machine's devices are.
struct ConfiguredPlan {
  Plan plan;
  std::string how;  // what the run chooses of it, and how it spreads the layers
  bool operator==(const ConfiguredPlan&) const = default;
};
// Of a configuration whose layers are not placed yet (Config::place_layers).
ConfiguredPlan configured_plan(const Config& config);

struct SavedPlan {
  Plan plan;
  std::optional<ConfiguredPlan> configured{};  // older checkpoints do not say
  std::optional<Guarantee> held{};             // likewise
};

using Metadata = std::map<std::string, std::string>;
void add_to_metadata(const SavedPlan& saved, Metadata* metadata);
// `layers`: of the model.
std::optional<SavedPlan> saved_plan_of(const Metadata& metadata, uint32_t layers, std::string* error);

}  // namespace spillway::trainer
