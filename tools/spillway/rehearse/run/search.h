// `rehearse --find`: runs the program with one value after another.
//
// Thread-safety: none. Errors: an exit code, with text on standard error.
#pragma once
#include <string>

#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

// `search`: "batch=1..64". `json`: a file for the table as JSON, "" for none.
int run_search(const RunOptions& options, const std::string& search, const std::string& json);

}  // namespace spillway::tools
