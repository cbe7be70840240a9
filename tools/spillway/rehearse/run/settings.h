// Under which settings a program was rehearsed: what decides its memory beside the program itself.
//
// Thread-safety: plain values, pure functions. Errors: none. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

// Nothing: not known, and so equal to everything.
struct Settings {
  std::optional<std::string> card;  // its name in the table, "" for one that only has a capacity
  std::optional<uint64_t> capacity_bytes, gpus;
  std::optional<std::string> allocator, values;
  std::optional<uint64_t> steps;  // 0: to the program's end
};

// What the options alone decide. A file of the machine, the environment and the program may say the rest.
Settings settings_asked(const RunOptions& options);
// What was in force.
Settings settings_of(const RunOptions& options, const Rehearsal& rehearsal);

// "steps: 3 there, 5 here; ...", or "" where nothing is known to differ.
std::string differences(const Settings& there, const Settings& here);

}  // namespace spillway::tools
