// Runs a program once on simulated GPUs and collects what it left.
//
// Thread-safety: one run at a time in a process. Ownership: the results' folder is removed. Errors: a program
// that cannot be started, and a simulator that is not complete, are text; what the program does is its
// outcome.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/simulated_machine.h"

namespace spillway::tools {

struct RunOptions {
  MachineOptions machine;
  std::string allocator = "native";  // or "expandable", "spillway"
  uint64_t steps = 0;                // 0: to the program's end
  bool checkpointing = false;        // the probe turns it on in models of Transformers
  std::string trace;                 // file for the stream of allocations, "" for none
  bool history = false;              // keeps every event, for a page
  Words command;
  bool keep_output = false;  // the program's output goes to `log`, not to the terminal
  bool progress = false;     // a line on standard error
};

struct RunError {
  int code = kUsageError;
  std::string text;
};

// Runs the program a second time, with masks that hold nowhere, where it failed or did not fit with masks
// that hold everywhere. Nothing, and `error`, when it was not started: after a signal to stop no run is. Nor
// is there anything to say of one that such a signal cut short where its output was kept.
std::optional<Rehearsal> rehearse_once(const RunOptions& options, RunError* error);

}  // namespace spillway::tools
