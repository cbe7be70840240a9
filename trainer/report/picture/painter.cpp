#include "trainer/report/picture/painter.h"

#include <algorithm>
#include <cmath>

#include "base/printed.h"

namespace spillway::trainer {

std::string first_line(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() <= kMostLetters ? line : line.substr(0, kMostLetters) + " ...";
}

Painter::Painter(const RunReport& report)
    : report_(report), history_(report.history), points_(history_.points()), picture_(kWidth, height()) {}

std::string Painter::paint() {
  picture_.text(kLeft, 28, first_line("spillway-train: " + report_.verdict), {.bold = true});
  picture_.text(kLeft, 47, first_line(report_.model), {.muted = true});
  if (points_.empty()) {
    picture_.text(kLeft, kTitle + 20, "No step was done.");
    return picture_.finish();
  }
  double top = kTitle + 14;
  for (size_t device = 0; device < devices(); ++device, top += kMemoryHeight + kGap) memory(device, top);
  loss(top);
  legend(top + kLossHeight + 54);
  return picture_.finish();
}

size_t Painter::devices() const {
  return std::min(kMostDevices, size_t{std::max(1u, history_.rates().devices)});
}

double Painter::height() const {
  if (points_.empty()) return kTitle + 40;
  const double moves = double(std::min(history_.moves().size(), kMostMarks + 1));
  return kTitle + 14 + double(devices()) * (kMemoryHeight + kGap) + kLossHeight + 54 +
         kLine * (std::ceil((double(kinds().size()) + 4) / 3) + moves + 1);
}

std::vector<std::string> Painter::kinds() const {
  std::vector<std::string> names;
  for (const PlanUse& use : history_.plans())
    for (const EstimateItem& item : use.estimate.items)
      if (!item.host && std::ranges::find(names, item.name) == names.end()) names.push_back(item.name);
  return names;
}

Plot Painter::plot(double top, double height) const {
  Plot made;
  made.top = top, made.height = height;
  made.first = double(points_.front().first), made.last = double(points_.back().last) + 1;
  return made;
}

void Painter::axes(const Plot& here, const std::string& title, double unit) {
  picture_.text(kLeft, here.top - 24, title);
  const double tick = tick_of((here.most - here.least) / unit) * unit;
  const int digits = tick / unit >= 1 ? 0 : int(std::ceil(-std::log10(tick / unit)));
  for (const double value : ticks(here.least, here.most, tick)) {
    picture_.line({{kLeft, here.y(value)}, {kWidth - kRight, here.y(value)}}, Pen::kGrid, 0.7);
    picture_.text(kLeft - 8, here.y(value) + 4, printed("%.*f", digits, value / unit),
                  {.anchor = Anchor::kEnd, .muted = true});
  }
  const double steps = std::max(1.0, tick_of(here.last - here.first));
  for (const double step : ticks(here.first, here.last - 1, steps))
    picture_.text(here.x(step), here.top + here.height + 17, printed("%.0f", step),
                  {.anchor = Anchor::kMiddle, .muted = true});
}

std::string report_svg(const RunReport& report) {
  return Painter(report).paint();
}

}  // namespace spillway::trainer
