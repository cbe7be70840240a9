// Managed memory: host memory, of the driver's, at addresses that devices use too. What was prefetched to a
// device counts there, by pieces of a granule, until it is prefetched elsewhere, freed, or in the way of
// something else: then what came first goes back to the host, as managed memory never makes a request fail.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: HostMemory has the blocks.
// Errors: what finds no room on a device stays on the host. Units: bytes.
#pragma once
#include <cstdint>
#include <map>

namespace spillway::simulator {

struct Device;

class ManagedMemory {
 public:
  // The pieces of the block that begins at `block` under [address, address + bytes); null: to the host.
  void move(uintptr_t block, uintptr_t address, uint64_t bytes, Device* device);
  // Makes at least `bytes` of the device's room free, or as much as there is.
  void evict(Device& device, uint64_t bytes);

 private:
  struct Piece {
    Device* device = nullptr;
    uint64_t order = 0;
  };
  void leave(uintptr_t piece);

  std::map<uintptr_t, Piece> resident_;     // by where the piece begins
  std::map<uint64_t, uintptr_t> by_order_;  // of the prefetches
  uint64_t next_order_ = 0;
};

}  // namespace spillway::simulator
