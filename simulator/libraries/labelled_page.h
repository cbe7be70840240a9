// Memory of the card that a library takes for itself, by the driver's own cuMemCreate and cuMemRelease as the
// loader and whoever watches it give them, and charged under a label (simulator_control.h, `label_page`).
//
// Thread-safety: any thread. Ownership: the caller releases what it made. Errors: the driver's;
// CUDA_ERROR_NOT_INITIALIZED without the simulated driver. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "driver/simulator_control.h"

namespace spillway::stand_in {

// The simulated driver's; null without one.
const SpillwaySimulatorControl* control();

// The device needs no context. 0 bytes: nothing is made, and `out` is 0, which may be released.
CUresult make_labelled_page(int device, const char* label, uint64_t bytes, CUmemGenericAllocationHandle* out);
void release_labelled_page(CUmemGenericAllocationHandle page);

}  // namespace spillway::stand_in
