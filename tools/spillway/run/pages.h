// The pages that a run leaves of what was not rescued, beside the traces.
//
// Thread-safety: one thread. Errors: a page that cannot be written is a line on stderr; the run ends as ever.
#pragma once
#include <string>
#include <vector>

namespace spillway::tools {

// For each of the traces with a failure that was not rescued, of the first few; returns the pages' paths.
std::vector<std::string> write_pages(const std::vector<std::string>& traces);

}  // namespace spillway::tools
