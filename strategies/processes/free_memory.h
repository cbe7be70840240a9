// How much memory of the devices is free, asked of the driver as often as it is cheap. cuMemGetInfo takes
// some 10 us on most machines and 8 ms on some (sgl-project/sglang#25225); there it is asked more rarely, so
// that it takes at most a hundredth of the time, and what it said last holds until then.
//
// Thread-safety: one thread. Ownership: none. Errors: nothing where the driver has never answered. Units:
// bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "driver/table.h"

namespace spillway {

class FreeMemory {
 public:
  struct Told {
    size_t free_bytes = 0, total_bytes = 0;
  };
  // Of the device whose context is current.
  std::optional<Told> of(const driver::Table& table, int ordinal);

 private:
  struct Device {
    std::optional<Told> told;
    uint64_t cost_ns = UINT64_MAX;  // the least so far: others may have held a call up
    uint64_t asked_ns = 0;
  };
  static bool is_due(const Device& device, uint64_t now_ns);

  std::map<int, Device> devices_;
};

}  // namespace spillway
