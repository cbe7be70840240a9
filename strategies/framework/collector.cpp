#include "strategies/framework/collector.h"

#include <atomic>

namespace spillway {
namespace {
std::atomic<const spillway_collector*> known_collector{nullptr};
}

void set_collector(const spillway_collector* collector) {
  if (collector != nullptr && collector->size >= sizeof *collector) known_collector.store(collector);
}

bool may_collect(int device) {
  const spillway_collector* collector = known_collector.load();
  return collector != nullptr && collector->any(device) != 0;
}

void collect(int device) {
  if (const spillway_collector* collector = known_collector.load()) collector->collect(device);
}

}  // namespace spillway
