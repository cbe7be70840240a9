// The machine as NVML sees it: every card, whatever CUDA_VISIBLE_DEVICES hides, and what its processes hold
// of each.
//
// Thread-safety: every function may be called from any thread. Ownership: devices live as long as the
// process. Errors: NVML's. Units: bytes.
#pragma once
#include <vector>

#include "driver/simulator_control.h"
#include "simulator/libraries/nvml/nvml_abi.h"

namespace spillway::nvml {

struct Device {
  int index = 0;
  SpillwaySimulatorCard card = {};
};

// Counted: as many `shut_down` as `initialise` make it uninitialised again.
Return initialise();
Return shut_down();

// Of the simulated driver. Needs no initialisation.
int cuda_version();

// Success when initialised; between the two every handle of a device is a pointer to one.
Return check_initialised();
Return device_count(unsigned* count);
Return device_at(unsigned index, Device** out);
// Checks a handle that the program gives back.
Return check_device(const Device* device);

// As configured, or as the simulator's control interface has set it since.
unsigned long long capacity_bytes(const Device& device);
// What the processes of the machine hold of a device.
std::vector<SpillwaySimulatorProcess> processes(const Device& device);

}  // namespace spillway::nvml
