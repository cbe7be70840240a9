// Why a program did not end well, in words.
//
// Thread-safety: pure functions.
#pragma once
#include <cstdint>
#include <string>

#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

// For the report: "" where nothing failed.
std::string failure_text(const RunOptions& options, const Rehearsal& rehearsal);
// The same as one line: the request and its verdict, or the program's exit code and its last error.
std::string failure_line(const Rehearsal& rehearsal);

// "in step 2", of a process that took `steps` in all.
std::string step_text(uint64_t step, uint64_t steps);

}  // namespace spillway::tools
