// Reads a log of RMM's as a history of memory.
//
//  - A log has requests and nothing else: not what the pool below them holds, not what the card had free. Its
//    blocks lie in no segment (`DeviceHistory::loose_blocks`) and have the size that was asked.
//  - It has no stacks. A block's place is its thread, with the power of two that its size is in.
//  - A failed request that the same thread asks again at once and gets is none of the failures (`kOther`):
//  RMM's
//    callers free memory and try again. `remark` says how many these are.
//  - The time is that of the day; where it falls by half a day, the next one has begun.
//  - The device is the number in a name such as "run.dev3.csv", as RMM gives it, else 0.
//
// Thread-safety: pure functions of the file. Ownership: the history keeps its texts. Errors: `error` says
// what is wrong with the file; lines of another form are counted in `passed_over`, and what else is missing
// is said in `incomplete`. Units: bytes, microseconds.
#pragma once
#include <istream>
#include <optional>
#include <string>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// Nothing, and `error`, for a file that has no line of such a log.
std::optional<MemoryHistory> read_rmm_log(const std::string& path, std::string* error);
// The same of a file's contents.
std::optional<MemoryHistory> parse_rmm_log(std::istream& lines, int device, std::string* error);

}  // namespace spillway::tools
