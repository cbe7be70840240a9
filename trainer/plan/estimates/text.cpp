#include <algorithm>
#include <cstdio>
#include <utility>

#include "trainer/plan/estimate.h"

namespace spillway::trainer {

const char* StepTime::limit() const {
  const std::pair<double, const char*> parts[] = {
      {compute, "compute"},
      {memory, "device memory"},
      {launches, "launches"},
      {optimizer, "optimizer"},
      {host_link, "host link"},
      {peer_link, "peer link"},
      {nvme, "NVMe"},
      {ranks, "ranks"},
      {streamed > passes() ? streamed : 0, streams_over_peers ? "peer link" : "host link"}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

std::string EstimateItem::place() const {
  return nvme ? "NVMe" : host ? "host" : "device " + std::to_string(device);
}

std::string Estimate::to_text() const {
  std::string text;
  char line[160];
  for (const EstimateItem& item : items) {
    std::snprintf(line, sizeof line, "  %-10s %-28s %10.1f MiB\n", item.place().c_str(), item.name.c_str(),
                  double(item.bytes) / 0x1p20);
    text += line;
  }
  for (size_t device = 0; device < device_peak_bytes.size(); ++device) {
    std::snprintf(line, sizeof line, "  device %-3zu %-28s %10.1f MiB\n", device, "peak",
                  double(device_peak_bytes[device]) / 0x1p20);
    text += line;
  }
  return text;
}

}  // namespace spillway::trainer
