#include "tools/spillway/rehearse/report/plot.h"

#include <algorithm>
#include <cmath>

#include "allocator/request/verdict.h"

namespace spillway::tools {
namespace {

std::vector<Point> columns_of(const std::vector<Point>& timeline, size_t columns) {
  const uint64_t end = timeline.back().last_event;
  std::vector<Point> out(columns);
  size_t next = 0;
  Point held;
  for (size_t i = 0; i < columns; ++i) {
    const uint64_t until = end * (i + 1) / columns;
    bool any = false;
    for (; next < timeline.size() && timeline[next].last_event <= until; ++next, any = true) {
      held = any ? Point{timeline[next].last_event, std::max(held.allocated, timeline[next].allocated),
                         std::max(held.reserved, timeline[next].reserved)}
                 : timeline[next];
    }
    out[i] = held;
  }
  return out;
}

const char* cell(const Point& point, uint64_t top, size_t rows, size_t row) {
  static constexpr const char* kEighths[] = {"", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double unit = static_cast<double>(top) / static_cast<double>(rows);
  const double low = static_cast<double>(row) * unit;
  const double filled = (static_cast<double>(point.allocated) - low) / unit;
  if (filled >= 1) return "█";
  if (filled > 1.0 / 16) return kEighths[std::clamp(std::lround(filled * 8), 1L, 8L)];
  return static_cast<double>(point.reserved) > low + unit / 2 ? "░" : " ";
}

std::string step_marks(const std::vector<Point>& steps, uint64_t end, size_t columns) {
  std::string marks(columns, ' ');
  size_t free_from = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t at =
        std::min<size_t>(columns - 1, steps[i].last_event * columns / std::max<uint64_t>(end, 1));
    const std::string name = std::to_string(i + 1);
    if (at < free_from || at + name.size() > columns) continue;
    marks.replace(at, name.size(), name);
    free_from = at + name.size() + 1;
  }
  marks.erase(marks.find_last_not_of(' ') + 1);
  return marks;
}

}  // namespace

std::string plot_memory(const std::vector<Point>& timeline, const std::vector<Point>& steps, size_t columns,
                        size_t rows, const std::string& indent) {
  uint64_t top = 0;
  for (const Point& point : timeline) top = std::max({top, point.allocated, point.reserved});
  if (top == 0 || columns == 0 || rows == 0) return "";
  const std::vector<Point> curve = columns_of(timeline, columns);
  std::string text;
  for (size_t row = rows; row-- > 0;) {
    std::string label = row == rows - 1 ? size_text(top) : row == 0 ? "0" : "";
    label.insert(0, 10 - std::min<size_t>(10, label.size()), ' ');
    text += indent + label + " ┤";
    std::string line;
    for (const Point& point : curve) line += cell(point, top, rows, row);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const std::string marks = step_marks(steps, timeline.back().last_event, columns);
  if (!marks.empty()) text += indent + "step ends   " + marks + "\n";
  return text;
}

}  // namespace spillway::tools
