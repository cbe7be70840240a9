// A history of memory for the page: blocks, segments and times in columns (columns.h), each stack once.
//
// Thread-safety: pure function. Units: bytes, microseconds, moments (lives.h). Errors: none.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// REQUIRES: `device` is one of `history.devices`.
nlohmann::ordered_json history_json(const MemoryHistory& history, int device);

}  // namespace spillway::tools
