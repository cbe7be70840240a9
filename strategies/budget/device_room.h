// What the driver has left of the current context's device, and what of that this process may have. In bytes.
//
// Thread-safety: any thread. Errors: nothing where the driver does not tell.
#pragma once
#include <cstdint>
#include <optional>

#include "allocator/allocator.h"

namespace spillway {

struct DeviceRoom {
  uint64_t total, free;    // of the device
  uint64_t limit, usable;  // of these, what the process's own limit leaves it; as above without one
};

std::optional<DeviceRoom> device_room(const Allocator& allocator, DeviceId device);

}  // namespace spillway
