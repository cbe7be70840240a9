// A curve of memory as text, for a terminal or a file.
//
// Thread-safety: pure function. Units: bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/spillway/rehearse/judge/observation.h"

namespace spillway::tools {

// `rows` lines of `columns` characters: allocated as solid blocks, reserved as shade above them, and a line
// under them that marks where optimizer steps end. "" if there is nothing to show.
std::string plot_memory(const std::vector<Point>& timeline, const std::vector<Point>& steps, size_t columns,
                        size_t rows, const std::string& indent);

}  // namespace spillway::tools
