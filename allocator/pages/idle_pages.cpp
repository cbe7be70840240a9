// For the strategies: all devices at once.
#include "allocator/pages/idle_pages.h"

#include "allocator/heap.h"

namespace spillway {

bool wait_until_all_idle(Allocator& allocator) noexcept {
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}) && !allocator.heap(DeviceId{i}, nullptr, nullptr)->wait_until_idle())
      return false;
  return true;
}

}  // namespace spillway
