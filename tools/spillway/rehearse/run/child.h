// A child process: started with variables of its own, waited for, told of the signals that end us, and ended
// when we are killed. What it leaves running when it was stopped is ended too.
//
// Thread-safety: one child at a time. Errors: a command that cannot be run is an errno.
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

// The signal to stop that came, or 0. From the first child on, SIGINT, SIGTERM and SIGHUP do not end this
// process, which is to look here before it starts anything else.
int stop_signal();

// Where a child's host addresses lie: the same in every run, for what repeats, or as the system has it.
enum class HostAddresses { kRepeated, kAsUsual };

// `output`: a file for its output, "" for ours. `tick` is called a few times a second while it runs.
ChildEnd run_child(const Words& command, const Environment& environment, const std::string& output,
                   const std::function<void()>& tick, HostAddresses addresses = HostAddresses::kRepeated);

}  // namespace spillway::tools
