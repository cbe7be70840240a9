// Memory that processes share: pages behind a block of ours as file descriptors, and pages of others mapped
// here.
//
// A block lies on the device to be shared: what was moved away comes back first. A shared block's pages stay
// where they are, and their descriptors open, until the block is freed; what another process has mapped then
// it keeps, and the bytes become those of whoever uses the page next, as natively. Mapped pages are charged
// to the process that made them: here they are in no account.
#pragma once
#include <cstdint>
#include <vector>

#include "allocator/tiling/pool_memory.h"
#include "allocator/units.h"

namespace spillway {

class Allocator;

// Whose blocks have handles of cuIpcGetMemHandle. Set before the first request.
void use_driver_memory(Allocator& allocator, DriverMemory whose);

struct SharedPage {
  uint64_t bytes = 0;
  uint64_t serial = 0;  // of this page's being shared: never the same twice in a process
  int descriptor = -1;  // the allocator's
};

struct SharedBlock {
  DeviceId device{};
  uint64_t offset = 0;            // of the block in its first page, or in its allocation
  std::vector<SharedPage> pages;  // by address; none: it lies in an allocation of the driver's
};

}  // namespace spillway
