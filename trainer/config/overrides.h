// "section.key=value" of a command line, over a TOML document.
//
// Thread-safety: pure functions. Errors: false, and a text that begins with the override.
#pragma once
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"
#include "trainer/plan/device_map.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/toml/strict_table.h"

namespace spillway::trainer {

// A value that is no TOML is taken as text. Errors about the value name the override in place of a line.
bool apply_override(const std::string& text, toml::table* document, std::string* error);

// Overrides of [plan], each "plan.key=value", over the plan of a training of `model`. `spread` is set where
// "devices" is a word; both stay as they were on an error.
bool override_plan(const std::vector<std::string>& overrides, const Architecture& model, Plan* plan,
                   DeviceSpread* spread, std::string* error);

}  // namespace spillway::trainer
