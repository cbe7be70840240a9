// What `spillway run` is told: by options, and by a TOML file of the same names. One table holds them all.
//
// Thread-safety: one thread. Errors: a text that says which value is wrong and what would be right.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/spillway/command.h"

namespace spillway::tools {

struct RunSettings {
  std::string mode = "rescue";
  std::string limit, reserve, guarantee, trace, strategies, host_budget, peer_budget, nvme, max_slowdown,
      stacks, on_oom_command;
  bool quiet = false;
};

using RunField = std::variant<std::string RunSettings::*, bool RunSettings::*>;

struct RunOption {
  const char* name;  // "--name" on the command line, "name" in the file
  RunField field;
  std::string help;
  std::vector<std::string> choices;  // empty: any text
  bool is_factor = false;            // in the file also a number without quotes
};

const std::vector<RunOption>& run_options();

// Reads a file into what the command line left unsaid: `is_given` tells of an option's name. Unknown keys and
// values of another type are refused, and nothing is changed then.
bool read_run_file(const std::string& path, const std::function<bool(const std::string&)>& is_given,
                   RunSettings* settings, std::string* error);

// What the core would refuse later, in the program's process, is refused here.
bool check(const RunSettings& settings, std::string* error);

}  // namespace spillway::tools
