#include "strategies/processes/free_memory.h"

#include <algorithm>

#include "driver/call_clock.h"

namespace spillway {

bool FreeMemory::is_due(const Device& device, uint64_t now_ns) {
  constexpr uint64_t kShare = 100;
  return !device.told || (now_ns - device.asked_ns) / kShare >= device.cost_ns;
}

std::optional<FreeMemory::Told> FreeMemory::of(const driver::Table& table, int ordinal) {
  Device& device = devices_[ordinal];
  const uint64_t before_ns = driver::call_clock_ns(table);
  if (!is_due(device, before_ns)) return device.told;
  Told told;
  if (table.cuMemGetInfo(&told.free_bytes, &told.total_bytes) != CUDA_SUCCESS) return std::nullopt;
  device.asked_ns = driver::call_clock_ns(table);
  device.cost_ns = std::min(device.cost_ns, device.asked_ns - before_ns);
  device.told = told;
  return told;
}

}  // namespace spillway
