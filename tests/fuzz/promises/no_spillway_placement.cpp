// Spillway's own allocator has fuzzers of its own (tests/allocator/fuzz/fuzz_test.cpp): here a replay on it
// is refused, as where the simulator's libraries are missing.
#include "tools/spillway/replay/spillway_placement.h"

namespace spillway::tools {

std::unique_ptr<Placement> make_spillway_placement(uint64_t, trace::Trace*, std::string* error) {
  *error = "the simulator's libraries are not here";
  return nullptr;
}

}  // namespace spillway::tools
