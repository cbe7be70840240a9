// For the strategies: all devices at once.
#include "allocator/pages/idle_pages.h"

#include "allocator/accounting/journal.h"
#include "allocator/heap.h"

namespace spillway {

bool wait_until_all_idle(Allocator& allocator) noexcept {
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}) && !allocator.heap(DeviceId{i}, nullptr, nullptr)->wait_until_idle())
      return false;
  return true;
}

void write_record(Allocator& allocator, DeviceId device, trace::Record record) noexcept {
  if (allocator.uses(device))
    return journal::write(allocator.heap(device, nullptr, nullptr)->state(), record);
  trace::Trace* trace = allocator.trace();
  if (trace == nullptr) return;
  record.order = allocator.next_order();
  record.device = static_cast<uint8_t>(device);
  trace->write(record);
}

}  // namespace spillway
