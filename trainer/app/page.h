// The report of a run that found no memory, as a page beside its trace.
//
// The `spillway` command that stands beside this program writes it, in a process of its own. Thread-safety:
// one thread. Errors: "" where there is no such command, or it could not; the run's result is the same.
#pragma once
#include <string>

namespace spillway::trainer {

// Returns the page's path. Waits for two minutes at most.
std::string write_report_page(const std::string& trace);

}  // namespace spillway::trainer
