// What must be true of any history of memory, whichever reader gave it, and of all that is made of it.
#pragma once
#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/history.h"

namespace spillway::fuzz {

// `choice` picks what is asked of it where asking for everything would be slow.
void keeps_promises(const tools::MemoryHistory& history, uint64_t choice);

// The page holds no markup beyond its own.
void is_inert(const std::string& page);

}  // namespace spillway::fuzz
