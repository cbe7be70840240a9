// What a device's memory is used for, at one moment.
#pragma once
#include <cstdint>

namespace spillway {

// Closes exactly: limit = live + rounding + stranded + cached + pending + pools + context + others + reserve
// + free.
struct Memory {
  uint64_t limit =
      0;              // what Spillway may use; the whole device when no limit is set; never less than is held
  uint64_t live = 0;  // asked for by the program and not freed
  uint64_t rounding = 0;  // given beyond what was asked for
  uint64_t stranded = 0;  // free bytes in pages that are partly in use
  uint64_t cached = 0;    // pages held that nothing uses
  uint64_t pending = 0;   // freed, waiting for other streams
  uint64_t pools = 0;     // idle in private pools, which other requests may not use, and where a pool's own
                          // source has it back
  // Taken from the limit by what was in use when Spillway started, and since then by the process's own calls
  // of the driver, where they are seen.
  uint64_t context = 0;
  uint64_t others = 0;        // taken from the limit by who else uses the device since
  uint64_t reserve = 0;       // could be had, but is left to other libraries: SPILLWAY_RESERVE
  uint64_t free = 0;          // could be had from the driver
  uint64_t device = 0;        // all that the card has; no term of the sum
  uint64_t spilled = 0;       // in use, and in another tier; no term of the sum, and not in `live`
  uint64_t spilled_peer = 0;  // of these, on another device
  uint64_t spilled_nvme = 0;  // or in a file; the rest in host memory

  uint64_t reserved = 0;                                          // physical bytes held
  uint64_t peak_live = 0, peak_allocated = 0, peak_reserved = 0;  // allocated: live + rounding
  uint64_t failures = 0, rescued = 0, unwound = 0, gave_up = 0;   // incidents by outcome
  uint64_t rescued_bytes = 0, rescue_us = 0;
  uint64_t driver_calls = 0;  // create, map, access, unmap, release

  uint64_t sum() const {
    return live + rounding + stranded + cached + pending + pools + context + others + reserve + free;
  }
};

}  // namespace spillway
