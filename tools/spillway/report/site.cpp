#include "tools/spillway/report/site.h"

#include "tools/spillway/report/trace/trace_history.h"

namespace spillway::tools {

Place place_of(const std::string& stack) {
  Place place;
  for (const StackFrame& frame : frames_of(stack)) {
    if (frame.line > 0)
      place.frames.push_back(
          {std::string(frame.function), std::string(frame.file), static_cast<uint64_t>(frame.line)});
    else if (place.label.empty())
      place.label = frame.function;
  }
  return place;
}

}  // namespace spillway::tools
