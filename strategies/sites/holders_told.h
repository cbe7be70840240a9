// What the trace is told of who holds the memory: at an incident, and now and then between them, for the
// report of a process that runs or was killed after its rings have lost the allocations.
//
// Thread-safety: HoldersTold is one thread's; the function may be called from any thread that holds no lock
// of the allocator's. Errors: none; without a trace nothing is told. Units: bytes.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/allocator.h"

namespace spillway {

// Of the device's places the `most` (at least one) that hold most; the last of them is all the others,
// without a name, where there are more.
std::vector<SiteHolding> largest_holders(Allocator& allocator, DeviceId device, size_t most);

class HoldersTold {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLongestPause = std::chrono::seconds(10);

  // Tells of every device, where that is due and memory was requested or freed since it was told. Due after
  // one second, then after pauses twice as long each, up to ten.
  void tell_when_due(Allocator& allocator, Clock::time_point now);

 private:
  Clock::time_point due_{};
  Clock::duration pause_ = std::chrono::seconds(1);
  std::pair<uint64_t, uint64_t> told_{};  // requests, and bytes in use
};

}  // namespace spillway
