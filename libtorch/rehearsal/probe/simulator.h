// The simulated driver as the probe sees it.
//
// Thread-safety: any thread. Errors: null where the driver is not the simulator's, or an older one.
#pragma once
#include "driver/simulator_control.h"

namespace spillway::rehearsal {

const SpillwaySimulatorControl* simulator();

}  // namespace spillway::rehearsal
