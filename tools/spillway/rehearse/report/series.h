// Several rehearsals as one table: --compare and several allocators.
//
// Thread-safety: none. Errors: an exit code, with text on standard error.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

// `json`: a file for the table as JSON, "" for none. A trace of the options is a file for each row of a
// comparison, by its name.
// The one exit code for all rows, from how the program ended in each.
int exit_code_of_comparison(const std::vector<std::pair<Fit, int>>& ends);
int run_comparison(const RunOptions& options, const std::string& cards, const std::string& json);
int run_allocators(const RunOptions& options, const std::vector<std::string>& names, const std::string& json);

}  // namespace spillway::tools
