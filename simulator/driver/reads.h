// What the host reads from a device: who is told of it, and what it finds where no value is computed.
//
// Thread-safety: `fill_with_chance` under the machine's lock; `tell_host_read` under it too, which it gives
// up while the observer runs. Ownership: none. Errors: none. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "spillway/driver/simulator_control.h"

namespace spillway::simulator {

// Null: nobody.
void set_read_observer(SpillwayReadObserver observer, void* argument);
void tell_host_read(CUdeviceptr source, uint64_t bytes);

// Small numbers that are not negative, whatever the type: 0 or 1 for a single byte or two, 0 to 16 for a
// single element of four or eight, and for more bytes a 0 or 1 in the lowest byte of every eight. As floating
// point these are about zero. The same calls give the same bytes in every run.
void fill_with_chance(void* to, uint64_t bytes);

}  // namespace spillway::simulator
