// The folded events as a section of a text report, and as an object of a JSON report.
//
// Thread-safety: pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/spillway/history/last_events.h"

namespace spillway::tools {

// "" where there are none.
std::string last_events_text(const LastEvents& last);
nlohmann::ordered_json last_events_json(const LastEvents& last);

}  // namespace spillway::tools
