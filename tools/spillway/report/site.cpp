#include "tools/spillway/report/site.h"

#include <charconv>
#include <optional>
#include <sstream>

namespace spillway::tools {
namespace {

std::optional<Frame> frame_of(const std::string& line) {
  const size_t space = line.rfind(' ');
  if (space == std::string::npos || space == 0) return std::nullopt;
  const size_t colon = line.rfind(':', space);
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  Frame frame{line.substr(space + 1), line.substr(0, colon), 0};
  const char* end = line.data() + space;
  const auto [rest, error] = std::from_chars(line.data() + colon + 1, end, frame.line);
  if (error != std::errc() || rest != end || frame.function.empty()) return std::nullopt;
  return frame;
}

}  // namespace

Place place_of(const std::string& stack) {
  Place place;
  std::istringstream lines(stack);
  for (std::string line; std::getline(lines, line);) {
    if (const auto frame = frame_of(line))
      place.frames.push_back(*frame);
    else if (place.label.empty())
      place.label = line;
  }
  return place;
}

}  // namespace spillway::tools
