// An overview of the ledger as text for people and as JSON for programs.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <string>

#include "tools/spillway/top/overview.h"

namespace spillway::tools {

std::string top_text(const Overview& overview);
// One object on one line.
std::string top_json(const Overview& overview);
// What fits a terminal of so many rows and columns: longer lines and further lines are cut, and said to be.
std::string cut_to_screen(const std::string& text, size_t rows, size_t columns);

}  // namespace spillway::tools
