// What the allocator held at a moment of a history.
//
// A snapshot is written after the failure, when the exception has freed much already. So the state at the
// failure is found backwards: from the blocks in the snapshot, undoing one event after the other.
//
// Thread-safety: pure functions. Units: bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

struct HeldBlock {
  uint64_t address = 0;
  uint64_t size = 0;       // as the allocator rounded it
  uint64_t requested = 0;  // as the program asked
  StackId stack = 0;
  bool pending = false;  // freed, but other streams may still use it
  // The event that allocated it; `kBeforeHistory` where that is older than the history.
  size_t born = std::numeric_limits<size_t>::max();
};
inline constexpr size_t kBeforeHistory = std::numeric_limits<size_t>::max();

// Free memory that the allocator holds for one pool and one stream: no other request may use it.
struct IdleMemory {
  uint64_t bytes = 0, largest = 0;  // of these, in one piece
};
using PoolAndStream = std::pair<PoolId, uint64_t>;

// A part of a segment, or the whole of it.
struct OwnedPiece {
  uint64_t address = 0, bytes = 0;
  PoolAndStream owner;
};

struct Moment {
  size_t event = 0;               // what had happened: the events before this one
  std::vector<HeldBlock> blocks;  // by address
  uint64_t reserved = 0;          // held by the allocator, in use or not
  std::map<PoolAndStream, IdleMemory> idle;
  std::vector<OwnedPiece> pieces;  // by address
  uint64_t contradictions = 0;     // events that do not go with the state: the history is not whole
};

// The state before event `event` of `device.events`; at most their number.
Moment moment_at(const DeviceHistory& device, size_t event);

// What a block of `bytes` is taken for where the file no longer has it: PyTorch's and Spillway's allocators
// round to 512 bytes. `rounding`: a power of two.
uint64_t rounded_block(uint64_t bytes, uint64_t rounding = 512);

// What the events since the history's beginning have taken, less what they gave back. Whatever a damaged file
// says, it is defined.
class Level {
 public:
  void take_in(const HistoryEvent& event) {
    if (event.action == Action::kAllocate) bits_ += event.size;
    if (event.action == Action::kFreeCompleted) bits_ -= event.size;
  }
  int64_t bytes() const { return static_cast<int64_t>(bits_); }

 private:
  uint64_t bits_ = 0;
};

// Before which event the most was in use.
size_t peak_of(const DeviceHistory& device);

}  // namespace spillway::tools
