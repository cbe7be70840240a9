// The events of a rehearsed program, as a history of memory that can be reported. It has no clock: times mean
// nothing in a rehearsal.
//
// Thread-safety: pure function of the file (libtorch/rehearsal/history.h has its form). Ownership: the
// history keeps its texts. Errors: lines of another form are counted, the rest is used; nothing where the
// file is none. Units: bytes.
#pragma once
#include <istream>
#include <optional>
#include <string>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// Of one device of the process: `device` as the process numbers it.
std::optional<MemoryHistory> parse_rehearsed_history(std::istream& lines, int device);
std::optional<MemoryHistory> read_rehearsed_history(const std::string& path, int device);

}  // namespace spillway::tools
