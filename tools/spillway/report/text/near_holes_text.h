// The pieces that come closest to what a request needs, as a section of a text report and as a list of a JSON
// report.
//
// Thread-safety: pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/spillway/history/findings/near_holes.h"

namespace spillway::tools {

// "" where there are none.
std::string near_holes_text(const std::vector<NearHole>& holes);
nlohmann::ordered_json near_holes_json(const std::vector<NearHole>& holes);

}  // namespace spillway::tools
