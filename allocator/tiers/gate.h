// Holds what could touch device memory while mappings change: launches, graph launches, copies and memsets of
// every device of the process, and beginnings of captures. Who watches the driver's calls provides it.
//
// Thread-safety: any thread; one at a time holds it closed, and its own calls of the driver must not go
// through what it closes.
#pragma once
#include <chrono>
#include <cstdint>

namespace spillway {

class Gate {
 public:
  virtual ~Gate() = default;
  // True: no such call is under way, and none begins until `open`. False at the deadline: it is open.
  virtual bool close(std::chrono::steady_clock::time_point deadline) noexcept = 0;
  virtual void open() noexcept = 0;
  // Streams of the process that are being captured; none begins while it is closed.
  virtual uint32_t captures() noexcept = 0;
  // By the calling thread so far; 0 where nobody counts them.
  virtual uint64_t launches() noexcept { return 0; }
};

}  // namespace spillway
