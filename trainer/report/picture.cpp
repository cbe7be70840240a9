#include <algorithm>
#include <cmath>

#include "base/printed.h"
#include "base/svg.h"
#include "trainer/report/report.h"

namespace spillway::trainer {
namespace {

using Pen = SvgPicture::Pen;
using Anchor = SvgPicture::Anchor;

constexpr double kWidth = 1100, kLeft = 86, kRight = 24, kMemoryHeight = 260, kLossHeight = 150, kTitle = 84,
                 kGap = 66, kLine = 21;
constexpr size_t kMostDevices = 4, kMostMarks = 16, kMostLetters = 130;
constexpr size_t kEvaluationColour = 4;

// 1, 2 or 5 times a power of ten, at least a fifth of `span`.
double tick_of(double span) {
  const double rough = span / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= rough) return step * power;
  return 10 * power;
}

// The multiples of `tick` from `least` to `most`.
std::vector<double> ticks(double least, double most, double tick) {
  constexpr int kMost = 20;
  std::vector<double> all;
  all.reserve(kMost);
  const double first = std::ceil(least / tick);
  for (int i = 0; i < kMost && (first + i) * tick <= most; ++i) all.push_back((first + i) * tick);
  return all;
}

// No axis reaches farther.
constexpr double kMostLoss = 1e30;
bool can_be_drawn(double loss) {
  return std::abs(loss) < kMostLoss;  // false of what is no number
}

std::string cut(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() <= kMostLetters ? line : line.substr(0, kMostLetters) + " ...";
}

// A rectangle of the picture with its scales.
struct Plot {
  double top = 0, height = 0;
  double first = 0, last = 1;  // steps; `last` is behind the last one
  double least = 0, most = 1;

  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * (step - first) / (last - first); }
  double y(double value) const { return top + height * (1 - (value - least) / (most - least)); }
};

class Painter {
 public:
  explicit Painter(const RunReport& report)
      : report_(report), history_(report.history), points_(history_.points()), picture_(kWidth, height()) {}

  std::string paint() {
    picture_.text(kLeft, 28, cut("spillway-train: " + report_.verdict), {.bold = true});
    picture_.text(kLeft, 47, cut(report_.model), {.muted = true});
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

 private:
  // Of neighbouring points under one plan.
  struct Span {
    double begin = 0, end = 0;
    size_t plan = 0;
  };

  size_t devices() const { return std::min(kMostDevices, size_t{std::max(1u, history_.rates().devices)}); }

  double height() const {
    if (points_.empty()) return kTitle + 40;
    const double moves = double(std::min(history_.moves().size(), kMostMarks + 1));
    return kTitle + 14 + double(devices()) * (kMemoryHeight + kGap) + kLossHeight + 54 +
           kLine * (std::ceil((double(kinds().size()) + 4) / 3) + moves + 1);
  }

  // What the estimates have on devices, in their order.
  std::vector<std::string> kinds() const {
    std::vector<std::string> names;
    for (const PlanUse& use : history_.plans())
      for (const EstimateItem& item : use.estimate.items)
        if (!item.host && std::ranges::find(names, item.name) == names.end()) names.push_back(item.name);
    return names;
  }

  Plot plot(double top, double height) const {
    Plot made;
    made.top = top, made.height = height;
    made.first = double(points_.front().first), made.last = double(points_.back().last) + 1;
    return made;
  }

  std::vector<Span> spans() const {
    std::vector<Span> all;
    for (const StepPoint& point : points_) {
      if (all.empty() || all.back().plan != point.plan)
        all.push_back({double(point.first), double(point.last) + 1, point.plan});
      all.back().end = double(point.last) + 1;
    }
    return all;
  }

  uint64_t estimated(size_t plan, size_t device, const std::string& kind) const {
    uint64_t bytes = 0;
    for (const EstimateItem& item : history_.plans()[plan].estimate.items)
      if (!item.host && item.device == device && item.name == kind) bytes += item.bytes;
    return bytes;
  }

  uint64_t limit_of(size_t device) const {
    const auto& last = points_.back().devices;
    return device < last.size() ? last[device].limit : 0;
  }

  // Of all that is drawn; a limit that is far above it is not.
  uint64_t most_of(size_t device) const {
    uint64_t most = 1 << 20;
    for (const StepPoint& point : points_) {
      most = std::max(most, history_.plans()[point.plan].estimate.device_peak_bytes[device]);
      if (device < point.devices.size()) most = std::max(most, point.devices[device].reserved);
    }
    const uint64_t limit = limit_of(device);
    return limit <= 2 * most ? std::max(most, limit) : most;
  }

  void memory(size_t device, double top) {
    Plot here = plot(top, kMemoryHeight);
    const uint64_t most = most_of(device), limit = limit_of(device);
    const double unit = most >= uint64_t{4} << 30 ? 0x1p30 : 0x1p20;
    here.most = 1.06 * double(most);
    std::string title = printed("device %zu, %s", device, unit > 0x1p20 ? "GiB" : "MiB");
    if (limit > most) title += printed("; the limit, %.1f, is above the picture", double(limit) / unit);
    areas(here, device);
    axes(here, title, unit);
    measured(here, device);
    if (limit > 0 && limit <= most)
      picture_.line({{here.x(here.first), here.y(double(limit))}, {here.x(here.last), here.y(double(limit))}},
                    Pen::kLimit, 2, "the limit");
    marks(here);
  }

  void areas(const Plot& here, size_t device) {
    const std::vector<Span> all = spans();
    std::vector<double> below(all.size(), 0.0);
    const std::vector<std::string> names = kinds();
    for (size_t kind = 0; kind < names.size(); ++kind) {
      std::vector<SvgPoint> upper, lower;
      uint64_t most = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const uint64_t bytes = estimated(all[i].plan, device, names[kind]);
        most = std::max(most, bytes);
        const double left = here.x(all[i].begin), right = here.x(all[i].end);
        lower.push_back({left, here.y(below[i])}), lower.push_back({right, here.y(below[i])});
        below[i] += double(bytes);
        upper.push_back({left, here.y(below[i])}), upper.push_back({right, here.y(below[i])});
      }
      if (most == 0) continue;
      upper.insert(upper.end(), lower.rbegin(), lower.rend());
      picture_.area(upper, kind, names[kind] + printed(": at most %.1f MiB", double(most) / 0x1p20));
    }
  }

  void axes(const Plot& here, const std::string& title, double unit) {
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

  void measured(const Plot& here, size_t device) {
    std::vector<SvgPoint> live, reserved;
    for (const StepPoint& point : points_) {
      if (device >= point.devices.size()) return;
      for (const double x : {here.x(double(point.first)), here.x(double(point.last) + 1)}) {
        live.push_back({x, here.y(double(point.devices[device].live))});
        reserved.push_back({x, here.y(double(point.devices[device].reserved))});
      }
    }
    picture_.line(reserved, Pen::kMuted, 1.5, "measured: reserved");
    picture_.line(live, Pen::kInk, 2, "measured: in use");
  }

  // Numbered as in the list below; what is too near shares a mark.
  void marks(const Plot& here) {
    const auto& moves = history_.moves();
    const size_t count = std::min(moves.size(), kMostMarks);
    for (size_t i = 0; i < count;) {
      const double x = here.x(double(moves[i].step));
      size_t end = i + 1;
      while (end < count && here.x(double(moves[end].step)) - x < 26) ++end;
      picture_.line({{x, here.top - 4}, {x, here.top + here.height}}, Pen::kMark, 1.5,
                    printed("step %llu: ", (unsigned long long)moves[i].step) + moves[i].action);
      const std::string label = end == i + 1 ? printed("%zu", end) : printed("%zu-%zu", i + 1, end);
      picture_.text(x, here.top - 9, label, {.anchor = Anchor::kMiddle});
      i = end;
    }
  }

  void loss(double top) {
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

  void draw_losses(const Plot& here) {
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
        picture_.dot(here.x(double(evaluation.step)), here.y(evaluation.loss), 4, kEvaluationColour,
                     printed("evaluation after %llu steps: %.4f", (unsigned long long)evaluation.step,
                             evaluation.loss));
  }

  void legend(double top) {
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

  void told(double y) {
    const auto& moves = history_.moves();
    const size_t count = std::min(moves.size(), kMostMarks);
    for (size_t i = 0; i < count; ++i, y += kLine) {
      const std::string what = moves[i].phase.empty() ? "" : ", out of memory in " + moves[i].phase;
      picture_.text(kLeft, y,
                    printed("%zu  step %llu: ", i + 1, (unsigned long long)moves[i].step) +
                        cut(moves[i].action + what + ", now " + to_string(moves[i].to)));
    }
    if (history_.all_moves() > count)
      picture_.text(kLeft, y, printed("and %llu more", (unsigned long long)(history_.all_moves() - count)),
                    {.muted = true});
  }

  const RunReport& report_;
  const RunHistory& history_;
  const std::vector<StepPoint>& points_;
  SvgPicture picture_;
};

}  // namespace

std::string report_svg(const RunReport& report) {
  return Painter(report).paint();
}

}  // namespace spillway::trainer
