// A place of the program, from the stack that a trace holds of it.
//
// Thread-safety: pure functions.
#pragma once
#include <string>

#include "tools/spillway/rehearse/judge/places.h"

namespace spillway::tools {

// `stack`: "/path/train.py:12 step" a line, innermost first; or one line of another form, which is a label.
Place place_of(const std::string& stack);

}  // namespace spillway::tools
