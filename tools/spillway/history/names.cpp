#include "tools/spillway/history/names.h"

#include <algorithm>

#include "tools/spillway/rehearse/judge/places.h"

namespace spillway::tools {
namespace {

// "backward of AddmmBackward0" from the frames of C++: a backward pass has none of Python's. "" without one.
std::string label_of(const std::vector<StackFrame>& frames) {
  for (const StackFrame& frame : frames) {
    const size_t end = frame.function.find("Backward");
    if (end == std::string_view::npos) continue;
    const size_t start = frame.function.find_last_of(":> ", end) + 1;  // npos + 1 is the beginning
    const size_t stop = frame.function.find_first_of(":(", end);
    return "backward of " +
           std::string(frame.function.substr(start, std::min(stop, frame.function.size()) - start));
  }
  return "";
}

// What stands in a stack's place where the file has none: a name without a file.
bool is_label(const std::vector<StackFrame>& frames) {
  return frames.size() == 1 && frames[0].file.empty() && frames[0].line == 0;
}

Place place_of(const std::vector<StackFrame>& frames) {
  Place place;
  for (const StackFrame& frame : frames)
    if (is_python(frame))
      place.frames.push_back(
          {std::string(frame.function), std::string(frame.file), static_cast<uint64_t>(frame.line)});
  if (place.frames.empty())
    place.label = is_label(frames) ? std::string(frames[0].function) : label_of(frames);
  return place;
}

}  // namespace

bool is_python(const StackFrame& frame) {
  return frame.line > 0 && (frame.file.ends_with(".py") || frame.file.starts_with('<'));
}

const StackName& StackNames::of(StackId stack) {
  const auto [known, is_new] = names_.try_emplace(stack);
  if (!is_new) return known->second;
  Place place = place_of(history_.stacks[stack]);
  if (place.frames.empty() && place.label.empty()) place.label = history_.without_stack;
  known->second = {where_of(place), caller_of(place)};
  return known->second;
}

}  // namespace spillway::tools
