// What a fuzzed block holds: in each 4 KiB, and at its end, a number that no other place of any other block,
// or of an earlier write to this one, has.
//
// Thread-safety: none. Ownership: the memory is the caller's and must be mapped.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace spillway::testing::tiers {

class Contents {
 public:
  // `alias`: from a device address to where the host reads and writes it.
  explicit Contents(ptrdiff_t alias) : alias_(static_cast<uint64_t>(alias)) {}

  // REQUIRES: at least 8 bytes.
  void write(uint64_t address, uint64_t bytes, uint64_t key) const {
    each(bytes, [&](uint64_t at) {
      const uint64_t stamp = stamp_of(key, at);
      std::memcpy(host(address + at), &stamp, sizeof stamp);
      return true;
    });
  }

  // "" or the first place that holds something else.
  std::string compare(uint64_t address, uint64_t bytes, uint64_t key) const {
    std::string wrong;
    each(bytes, [&](uint64_t at) {
      uint64_t found = 0;
      std::memcpy(&found, host(address + at), sizeof found);
      if (found != stamp_of(key, at))
        wrong = "byte " + std::to_string(at) + " of a block of " + std::to_string(bytes) + " is not its own";
      return wrong.empty();
    });
    return wrong;
  }

 private:
  static constexpr uint64_t kStep = 4096;
  template <typename Visit>
  static void each(uint64_t bytes, Visit visit) {
    for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += kStep)
      if (!visit(at)) return;
    visit(bytes - sizeof(uint64_t));
  }
  static uint64_t stamp_of(uint64_t key, uint64_t at) {
    uint64_t value = key * 0x9e3779b97f4a7c15u + at;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    return value ^ (value >> 27);
  }
  void* host(uint64_t address) const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the simulator's addresses are numbers.
    return reinterpret_cast<void*>(address + alias_);
  }

  uint64_t alias_;
};

}  // namespace spillway::testing::tiers
