// The options that rehearse and check share.
//
// Thread-safety: none. Errors: CLI11's.
#pragma once
#include <string>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

void declare_run(CLI::App& app, const Words& command, RunOptions* run);
// "native,spillway" → its parts.
Words split_list(const std::string& text);
// What is wrong with the name of an allocator, or "".
std::string wrong_allocator(const std::string& name);
// What is still to be said of the machine, or "".
std::string missing_machine(const MachineOptions& machine);

}  // namespace spillway::tools
