// What other parts ask of loaded modules.
//
// Thread-safety: used under the simulator's lock. Ownership: names live as long as the process. Errors and
// units: none.
#pragma once
#include <cuda.h>

namespace spillway::simulator {

// The name of a function or kernel, "kernel" for one that is not known.
const char* kernel_name(CUfunction function);
// A function of that name that belongs to no module.
CUfunction function_named(const char* name);
bool belongs_to_no_module(CUfunction function);

}  // namespace spillway::simulator
