// What memory was for, and in blocks of which sizes, as a section of a text report and as a list of a JSON
// report.
//
// Thread-safety: pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/spillway/history/findings/kinds.h"

namespace spillway::tools {

// "" where there are none.
std::string kinds_text(const std::vector<KindShare>& kinds);
nlohmann::ordered_json kinds_json(const std::vector<KindShare>& kinds);

}  // namespace spillway::tools
