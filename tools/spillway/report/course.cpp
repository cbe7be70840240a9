#include "tools/spillway/report/course.h"

#include <algorithm>
#include <span>

namespace spillway::tools {

namespace {

// Of each two moments the later one has more in use, but for a few: steps rise and fall.
bool rises(std::span<const CoursePoint> course) {
  size_t pairs = 0, rising = 0;
  for (size_t later = 1; later < course.size(); ++later)
    for (size_t earlier = 0; earlier < later; ++earlier) {
      ++pairs;
      rising += course[earlier].used_bytes < course[later].used_bytes ? 1 : 0;
    }
  return rising * 10 >= pairs * 9;
}

uint64_t least_of(std::span<const CoursePoint> course) {
  return std::ranges::min_element(course, {}, &CoursePoint::used_bytes)->used_bytes;
}

}  // namespace

std::optional<SteadyRise> steady_rise(const std::vector<CoursePoint>& course) {
  constexpr size_t kMost = 1024, kPart = 3;
  if (course.size() < kFewestPoints || course.size() > kMost) return std::nullopt;
  const std::span<const CoursePoint> settled = std::span(course).subspan(course.size() / 4);
  const size_t part = settled.size() / kPart;
  const uint64_t from = least_of(settled.first(part)), to = least_of(settled.last(part));
  if (!rises(settled) || to <= from) return std::nullopt;
  const uint64_t begin = settled.front().clock_ns, end = settled.back().clock_ns;
  return SteadyRise{from, to, end - std::min(begin, end)};
}

}  // namespace spillway::tools
