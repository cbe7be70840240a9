#include "trainer/report/picture/painter.h"

#include <algorithm>
#include <cmath>

#include "base/printed.h"

namespace spillway::trainer {
namespace {

// No axis reaches farther.
constexpr double kMostLoss = 1e30;
bool can_be_drawn(double loss) {
  return std::abs(loss) < kMostLoss;  // false of what is no number
}

}  // namespace

void Painter::loss(double top) {
  Plot here = plot(top, kLossHeight);
  double least = kMostLoss, most = -kMostLoss;
  const auto see = [&](double value) {
    if (can_be_drawn(value)) least = std::min(least, value), most = std::max(most, value);
  };
  for (const StepPoint& point : points_) see(point.loss);
  for (const EvaluationPoint& evaluation : history_.evaluations()) see(evaluation.loss);
  if (least > most) least = 0, most = 1;
  const double room = std::max({0.05 * (most - least), 1e-3, 1e-6 * std::abs(most)});
  here.least = least - room, here.most = most + room;
  axes(here, "loss", 1);
  draw_losses(here);
  picture_.text((kLeft + kWidth - kRight) / 2, here.top + here.height + 34, "step",
                {.anchor = Anchor::kMiddle, .muted = true});
}

void Painter::draw_losses(const Plot& here) {
  std::vector<SvgPoint> line;
  const auto draw = [&] {
    if (line.size() > 1) picture_.line(line, Pen::kInk, 1.5);
    if (line.size() == 1) picture_.line({line[0], {line[0].x + 1, line[0].y}}, Pen::kInk, 2);
    line.clear();
  };
  for (const StepPoint& point : points_) {
    if (can_be_drawn(point.loss))
      line.push_back({here.x((double(point.first) + double(point.last) + 1) / 2), here.y(point.loss)});
    else
      draw();
  }
  draw();
  for (const EvaluationPoint& evaluation : history_.evaluations())
    if (can_be_drawn(evaluation.loss))
      picture_.dot(
          here.x(double(evaluation.step)), here.y(evaluation.loss), 4, kEvaluationColour,
          printed("evaluation after %llu steps: %.4f", (unsigned long long)evaluation.step, evaluation.loss));
}

}  // namespace spillway::trainer
