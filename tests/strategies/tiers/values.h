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
    const unsigned char* first = host(address);
    return bytes == 0 || (*first == value && std::memcmp(first, first + 1, bytes - 1) == 0);
  }
};

}  // namespace spillway::testing
