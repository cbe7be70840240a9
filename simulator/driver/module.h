// What other parts ask of loaded modules.
//
// Thread-safety: used under the simulator's lock. Ownership: names live as long as the process. Errors and
// units: none.
#pragma once
#include <cuda.h>

namespace spillway::simulator {

// The name of a function or kernel, "kernel" for one that is not known.
const char* kernel_name(CUfunction function);

}  // namespace spillway::simulator
