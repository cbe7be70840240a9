// Several rehearsals as one table: --find and --compare.
//
// Thread-safety: none. Errors: an exit code, with text on standard error.
#pragma once
#include <string>

#include "tools/spillway/rehearse/run.h"

namespace spillway::tools {

// `json`: a file for the table as JSON, "" for none.
int run_search(const RunOptions& options, const std::string& search, const std::string& json);
int run_comparison(const RunOptions& options, const std::string& cards, const std::string& json);

}  // namespace spillway::tools
