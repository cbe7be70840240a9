// What stands in the program at the places that a report names.
//
// Thread-safety: as SourceLines.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/history/names.h"
#include "tools/spillway/history/source_lines.h"

namespace spillway::tools {

// A table with its heading, each line once, in the order of `places`; "" where none is at hand.
std::string lines_text(const std::vector<StackName>& places, SourceLines* sources);

}  // namespace spillway::tools
