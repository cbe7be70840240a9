// The files that the options of rehearse and check name. They are looked at before the run, which may take
// hours, and written after it.
//
// Thread-safety: any thread. Errors: "" or what went wrong, in words.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace spillway::tools {

// Option and path; those with no path are passed over.
std::string check_outputs(const std::vector<std::pair<const char*, std::string>>& outputs);
std::string write_output(const std::string& path, const std::string& text);

}  // namespace spillway::tools
