// Models that are known by name: public ones whose architecture is exactly one of the trainer's.
//
// Thread-safety: constant data. Errors: an unknown name is nothing.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"

namespace spillway::tools {

// Upper and lower case are one: "gpt2-xl", "Llama-3-8B".
std::optional<trainer::Architecture> known_model(const std::string& name);
std::vector<std::string> known_model_names();
// The names that `name` may stand for: all of its words are theirs, or all of theirs are its. Whose model it
// is
// ("meta-llama/") does not count.
std::vector<std::string> models_named_like(const std::string& name);

}  // namespace spillway::tools
