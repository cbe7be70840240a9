#include "allocator/accounting/record.h"

#include "allocator/accounting/journal.h"
#include "allocator/heap.h"

namespace spillway {

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
