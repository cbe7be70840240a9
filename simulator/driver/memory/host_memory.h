// Host memory that the driver gave out or registered: page-locked, with a device address equal to its own.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: owns what `allocate` gave.
// Units: bytes.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "simulator/driver/process/referee.h"

namespace spillway::simulator {

constexpr uint64_t kHostPage = 4096;

struct HostBlock {
  uint64_t bytes = 0;
  unsigned flags = 0;
  bool registered = false;  // the program's own memory
  bool managed = false;     // of cuMemAllocManaged
  int device = 0;           // whose context was current
  Use use = {};
  Site site = nullptr;
};

// Host memory of the driver's, which becomes a block like `block`.
CUresult allocate_host(void** out, uint64_t bytes, HostBlock block);

class HostMemory {
 public:
  using Blocks = std::map<uintptr_t, HostBlock>;

  void* allocate(uint64_t bytes);
  void free(void* address, uint64_t bytes);
  Blocks::iterator find(const void* address);  // the block that holds an address
  bool overlaps(const void* address, uint64_t bytes);
  // Makes host bytes zeros, the program's own or the driver's, without taking pages for what was never
  // written: a program that moves tens of gigabytes to the host in null mode stays small.
  void clear(void* address, uint64_t bytes);
  Blocks& blocks() { return blocks_; }
  void add(uintptr_t address, const HostBlock& block);
  void remove(Blocks::iterator block);
  uint64_t pinned_peak_bytes() const { return pinned_peak_; }  // page-locked at once, at most

  // Pinned memory that a copy of unknown bytes has cleared. While it is all zeros what comes back from there
  // is as unknown as it went: a tensor that waits on the host.
  void note_copy(const void* address, uint64_t bytes, bool known);
  bool holds_unknown(const void* address, uint64_t bytes);

 private:
  bool is_pinned(const void* address, uint64_t bytes);

  Blocks blocks_;
  uint64_t pinned_ = 0, pinned_peak_ = 0;
  std::map<uintptr_t, uintptr_t> unknown_;  // begin and end; none overlaps another
};

}  // namespace spillway::simulator
