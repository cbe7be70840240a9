// The simulator's accounts as text: what was not given back, and the report that is left at the end of the
// process.
#pragma once
#include <string>

namespace spillway::simulator {

std::string leaks();  // with the lock held

}  // namespace spillway::simulator
