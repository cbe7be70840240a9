// What the host reads from a device: who is told of it, and what it finds where no value is computed.
//
// Thread-safety: `note_host_read` and `fill_with_chance` under the machine's lock; `tell_observer` without
// it, as the observer may call the driver. Ownership: none. Errors: none. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "driver/simulator_control.h"
#include "simulator/driver/process/referee.h"

namespace spillway::simulator {

struct HostRead {
  CUdeviceptr source = 0;
  uint64_t bytes = 0;
};

// Null: nobody.
void set_read_observer(SpillwayReadObserver observer, void* argument);
// For work that has just copied: counts, and leaves it to the call that runs the work to tell the observer.
void note_host_read(const HostRead& read, Site site);
// Null mode: a program that reads the same place again and again, with hardly a kernel between, waits for
// what nobody computes. Says so once.
void note_polling(const HostRead& read);
// A program that is killed leaves its reads: writes the report at the first and then at most every second.
void report_host_reads();
void tell_observer(const HostRead& read);

// Small whole numbers that are not negative: 0 or 1 for a single byte, 0 to 16 for two to eight, and for more
// a 0 or 1 in the lowest byte of every eight. As floating point these bytes are next to nothing: who knows
// the type has to make the number of them. The same calls give the same bytes in every run.
void fill_with_chance(void* to, uint64_t bytes);

}  // namespace spillway::simulator
