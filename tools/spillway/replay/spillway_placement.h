// Spillway's own allocator as a placement: the real one, with its strategies that move nothing off the card,
// in this process, on the simulated driver.
//
// Thread-safety: one placement at a time in a process. Ownership: the driver stays loaded. Errors: `make`
// says why there is none. Units: bytes.
#pragma once
#include <memory>
#include <string>

#include "tools/spillway/replay/placement.h"

namespace spillway::trace {
class Trace;
}

namespace spillway::tools {

// Null, and `error`, where the simulator's libraries are missing or its driver does not start. `trace`: what
// the allocator writes, or null.
std::unique_ptr<Placement> make_spillway_placement(uint64_t capacity, trace::Trace* trace,
                                                   std::string* error);

}  // namespace spillway::tools
