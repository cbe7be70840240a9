#include "tools/spillway/report/course.h"

#include <algorithm>
#include <array>

namespace spillway::tools {

std::optional<SteadyRise> steady_rise(const std::vector<CoursePoint>& course) {
  constexpr size_t kParts = 4, kFewest = 12;
  if (course.size() < kFewest) return std::nullopt;
  const size_t first = course.size() / 4, count = course.size() - first;
  std::array<uint64_t, kParts> least{};
  least.fill(UINT64_MAX);
  for (size_t i = 0; i < count; ++i) {
    uint64_t& part = least[i * kParts / count];
    part = std::min(part, course[first + i].used_bytes);
  }
  if (std::ranges::adjacent_find(least, std::ranges::greater_equal()) != least.end()) return std::nullopt;
  const uint64_t begin = course[first].clock_ns, end = course.back().clock_ns;
  return SteadyRise{least.front(), least.back(), end - std::min(begin, end)};
}

}  // namespace spillway::tools
