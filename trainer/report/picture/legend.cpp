#include "trainer/report/picture/painter.h"

#include <algorithm>
#include <cmath>

#include "base/printed.h"

namespace spillway::trainer {

void Painter::legend(double top) {
  constexpr double kColumn = (kWidth - kLeft - kRight) / 3;
  const std::vector<std::string> names = kinds();
  const bool measured = !points_.back().devices.empty();
  size_t place = 0;
  const auto next = [&] {
    const size_t row = place / 3, column = place++ % 3;
    return SvgPoint{kLeft + kColumn * double(column), top + kLine * double(row)};
  };
  const auto pen = [&](const char* name, Pen with, double width) {
    const SvgPoint at = next();
    picture_.line({{at.x - 4, at.y + 7}, {at.x + 18, at.y + 7}}, with, width);
    picture_.text(at.x + 26, at.y + 12, name);
  };
  for (size_t kind = 0; kind < names.size(); ++kind) {
    const SvgPoint at = next();
    picture_.rectangle(at.x, at.y, 14, 14, kind);
    picture_.text(at.x + 26, at.y + 12, names[kind]);
  }
  if (measured)
    pen("measured: in use, at most", Pen::kInk, 2), pen("measured: reserved, at most", Pen::kMuted, 1.5);
  if (measured) pen("limit", Pen::kLimit, 2);
  const SvgPoint at = next();
  picture_.dot(at.x + 7, at.y + 7, 4, kEvaluationColour);
  picture_.text(at.x + 26, at.y + 12, "loss of an evaluation");
  told(top + kLine * std::ceil(double(place) / 3) + kLine);
}

void Painter::told(double y) {
  const auto& moves = history_.moves();
  const size_t count = std::min(moves.size(), kMostMarks);
  for (size_t i = 0; i < count; ++i, y += kLine) {
    const std::string what = moves[i].phase.empty() ? "" : ", out of memory in " + moves[i].phase;
    picture_.text(kLeft, y,
                  printed("%zu  step %llu: ", i + 1, (unsigned long long)moves[i].step) +
                      first_line(moves[i].action + what + ", now " + to_string(moves[i].to)));
  }
  if (history_.all_moves() > count)
    picture_.text(kLeft, y, printed("and %llu more", (unsigned long long)(history_.all_moves() - count)),
                  {.muted = true});
}

}  // namespace spillway::trainer
