// A history of memory as a snapshot in PyTorch's form, for its viewer (memory_viz) and the tools that read
// it.
//
// Thread-safety: pure function. Errors: none. The form: torch/cuda/memory.py, `_snapshot`.
#pragma once
#include <string>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// The pickle of `history`. A block in no segment is written as one of its own. REQUIRES: the blocks of
// each segment tile it.
std::string snapshot_of(const MemoryHistory& history);

}  // namespace spillway::tools
