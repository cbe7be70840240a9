#include "tools/spillway/perfetto/time_axis.h"

#include <algorithm>

namespace spillway::tools {
namespace {

constexpr uint64_t kMicrosecond = 1000;
constexpr uint64_t kLargest = INT64_MAX / kMicrosecond - 1;

}  // namespace

TimeAxis::TimeAxis(const DeviceHistory& device) {
  const auto& events = device.events;
  times_.reserve(std::max<size_t>(events.size(), 1));
  has_clock_ = std::any_of(events.begin(), events.end(), [&](const HistoryEvent& event) {
    return event.microseconds != events.front().microseconds;
  });
  uint64_t now = 0, within = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const uint64_t time = has_clock_ ? std::min(events[i].microseconds, kLargest) : i;
    within = i == 0 || time > now ? 0 : std::min(within + 1, kMicrosecond - 1);
    now = i == 0 ? time : std::max(now, time);
    times_.push_back(now * kMicrosecond + within);
  }
  if (times_.empty()) times_.push_back(0);
}

}  // namespace spillway::tools
