// The nearest of the names that a user may have meant.
#pragma once
#include <string>
#include <vector>

namespace spillway::tools {

// " Did you mean '--json'?", or "" if nothing is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names);

}  // namespace spillway::tools
