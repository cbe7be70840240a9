// The card below: the simulated driver and runtime, as far as NCCL uses them.
//
// Thread-safety: any thread. Ownership: none. Errors: CUresult; null when there is no simulated driver.
// Units: bytes.
#pragma once
#include <cuda.h>

#include <string>

#include "driver/simulator_control.h"

namespace spillway::nccl {

const SpillwaySimulatorControl* control();
bool computes();
// What the host may read and write for a device address, in computing mode.
void* host_view(const void* device_address);

// The current device, with a context on it; -1: there is none.
int current_device();
std::string card_name(int device);
// Which card that is, over all processes of the machine.
std::string card_identity(int device);

// Makes a device current as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

// A function of the driver by its name, as NCCL finds it.
void* driver_function(const char* name);

}  // namespace spillway::nccl
