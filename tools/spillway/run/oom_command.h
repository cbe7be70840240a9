// The user's own command, run when a run's first failure is not rescued (`--on-oom-command`).
//
// Thread-safety: one thread. Errors: a command that fails, or takes longer than a minute, is a line on
// stderr.
#pragma once
#include <string>

namespace spillway::tools {

// The process that ran out, its trace and its page; "": there is none.
struct OutOfMemory {
  int process = 0;
  std::string trace, page;
};

// `/bin/sh -c command`, without the preloaded library, with SPILLWAY_OOM_PROCESS, SPILLWAY_OOM_TRACE,
// SPILLWAY_OOM_PAGE and SPILLWAY_OOM_VERDICT, the report's first line, in its environment. It reads nothing.
void run_oom_command(const std::string& command, const OutOfMemory& failure);

}  // namespace spillway::tools
