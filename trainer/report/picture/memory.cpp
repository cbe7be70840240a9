#include "trainer/report/picture/painter.h"

#include <algorithm>

#include "base/printed.h"

namespace spillway::trainer {

std::vector<Painter::Span> Painter::spans() const {
  std::vector<Span> all;
  for (const StepPoint& point : points_) {
    if (all.empty() || all.back().plan != point.plan)
      all.push_back({double(point.first), double(point.last) + 1, point.plan});
    all.back().end = double(point.last) + 1;
  }
  return all;
}

uint64_t Painter::estimated(size_t plan, size_t device, const std::string& kind) const {
  uint64_t bytes = 0;
  for (const EstimateItem& item : history_.plans()[plan].estimate.items)
    if (!item.host && item.device == device && item.name == kind) bytes += item.bytes;
  return bytes;
}

uint64_t Painter::limit_of(size_t device) const {
  const auto& last = points_.back().devices;
  return device < last.size() ? last[device].limit : 0;
}

uint64_t Painter::most_of(size_t device) const {
  uint64_t most = 1 << 20;
  for (const StepPoint& point : points_) {
    most = std::max(most, history_.plans()[point.plan].estimate.device_peak_bytes[device]);
    if (device < point.devices.size()) most = std::max(most, point.devices[device].reserved);
  }
  const uint64_t limit = limit_of(device);
  return limit <= 2 * most ? std::max(most, limit) : most;
}

void Painter::memory(size_t device, double top) {
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

void Painter::areas(const Plot& here, size_t device) {
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

void Painter::measured(const Plot& here, size_t device) {
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

void Painter::marks(const Plot& here) {
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

}  // namespace spillway::trainer
