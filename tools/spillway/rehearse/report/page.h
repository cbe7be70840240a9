// A rehearsal as one HTML page that needs nothing else: the page of `spillway report --html`, of the process
// that ran out of memory, or of that which filled its card most.
//
// Thread-safety: `rehearsal_page_text` replays on Spillway's allocator, one call at a time in a process.
// Errors: a rehearsal without a history of its events has a page without charts.
#pragma once
#include <string>

#include "tools/spillway/rehearse/judge/explain.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

std::string rehearsal_page_text(const RunOptions& options, const Rehearsal& rehearsal,
                                const Explanation& explanation);

// Of a program that ran out of memory, where `run` would leave the page; one line on stderr says so.
void leave_page_of_failure(const RunOptions& options, const Rehearsal& rehearsal,
                           const Explanation& explanation);

}  // namespace spillway::tools
