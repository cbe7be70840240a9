// Who holds what the request may not use, as a section of a text report and as a list of a JSON report.
//
// Thread-safety: pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/spillway/history/findings/pools.h"

namespace spillway::tools {

// "" where there are none.
std::string pools_text(const std::vector<PoolHolding>& pools);
nlohmann::ordered_json pools_json(const std::vector<PoolHolding>& pools);

std::string place_text(const PoolPlace& place);
nlohmann::ordered_json places_json(const std::vector<PoolPlace>& places);

}  // namespace spillway::tools
