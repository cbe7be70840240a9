// A child process: started with variables of its own, waited for, and told of the signals that end us.
//
// Thread-safety: one child at a time. Errors: a command that can not be run is an errno.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>

#include "tools/spillway/command.h"
#include "tools/spillway/simulated_machine.h"

namespace spillway::tools {

struct ChildEnd {
  int exit_code = 0;    // 128 + the signal that ended it
  int start_error = 0;  // errno; 0 when it was started
};

// `output`: a file for its output, "" for ours. `tick` is called a few times a second while it runs.
ChildEnd run_child(const Words& command, const Environment& environment, const std::string& output,
                   const std::function<void()>& tick);

}  // namespace spillway::tools
