// What a replay did, as a memory snapshot of PyTorch's form: `spillway report` and memory_viz read it.
//
// Thread-safety: pure function. Errors: none. Units: bytes.
#pragma once
#include <string>

#include "tools/spillway/replay/input/input.h"
#include "tools/spillway/replay/replay.h"

namespace spillway::tools {

std::string replay_snapshot(const ReplayInput& input, ReplayAllocator allocator, uint64_t capacity,
                            ReplayRecord record);

}  // namespace spillway::tools
