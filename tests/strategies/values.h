// A device whose memory is really there, in computing mode: what blocks hold.
#pragma once
#include <cstdint>
#include <cstring>

#include "tests/allocator/simulated.h"

namespace spillway::testing {

class Values : public SimulatedDevice {
 protected:
  unsigned char* host(uint64_t address) {
    return reinterpret_cast<unsigned char*>(address + static_cast<uint64_t>(control->alias_offset()));
  }
  void fill(uint64_t address, uint64_t bytes, unsigned char value) {
    std::memset(host(address), value, bytes);
  }
  bool holds(uint64_t address, uint64_t bytes, unsigned char value) {
    for (uint64_t i = 0; i < bytes; ++i)
      if (host(address)[i] != value) return false;
    return true;
  }
};

}  // namespace spillway::testing
