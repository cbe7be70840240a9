#include "simulator/driver/entry/driver_version.h"

#include <cuda.h>

#ifndef SPILLWAY_SIM_DRIVER_VERSION
#define SPILLWAY_SIM_DRIVER_VERSION CUDA_VERSION
#endif

namespace spillway::simulator {

const int kDriverVersion = SPILLWAY_SIM_DRIVER_VERSION;

}  // namespace spillway::simulator
