#include "strategies/budget/device_room.h"

#include <algorithm>

#include "allocator/accounting/process_budget.h"

namespace spillway {

std::optional<DeviceRoom> device_room(const Allocator& allocator, DeviceId device) {
  size_t free = 0, total = 0;
  const driver::Table& table = allocator.table();
  if (table.cuMemGetInfo == nullptr || table.cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return std::nullopt;
  DeviceRoom room{total, free, total, free};
  const spillway_budget* budget = allocator.budget();
  const auto index = static_cast<size_t>(device);
  if (budget == nullptr || index >= SPILLWAY_MOST_DEVICES) return room;
  room.limit = std::min<uint64_t>(total, budget::read(budget->limit_bytes));
  room.usable = std::min<uint64_t>(free, budget::room(*budget, index, 0));
  return room;
}

}  // namespace spillway
