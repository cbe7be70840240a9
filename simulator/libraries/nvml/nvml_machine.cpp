#include "simulator/libraries/nvml/nvml_machine.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/mutex.h"

namespace spillway::nvml {
namespace {

constexpr size_t kMaxDevices = 16;

struct Machine {
  Mutex<LockOrder::kLibraryHandles> mutex;
  unsigned users SPILLWAY_GUARDED_BY(mutex) = 0;
  // Written with the lock by who initialises first, and read by who has initialised.
  const SpillwaySimulatorControl* control = nullptr;
  std::array<Device, kMaxDevices> devices;
  unsigned count = 0;
};

// Programs may ask at their very end.
Machine& machine() {
  static auto* const made = new Machine;
  return *made;
}

const SpillwaySimulatorControl* find_control() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto function =
      driver == nullptr
          ? nullptr
          : reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(driver, "spillway_simulator_control"));
  if (function != nullptr) return function();
  std::fprintf(
      stderr,
      "spillway simulator: NVML finds no simulated driver: put the folder of the simulated libraries "
      "first in LD_LIBRARY_PATH\n");
  return nullptr;
}

}  // namespace

int cuda_version() {
  int version = 0;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto ask =
      driver == nullptr ? nullptr : reinterpret_cast<CUresult (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  return ask != nullptr && ask(&version) == CUDA_SUCCESS ? version : CUDA_VERSION;
}

Return initialise() {
  Machine& sim = machine();
  const Locked lock(sim.mutex);
  if (sim.users++ > 0) return kSuccess;
  if (sim.control == nullptr) sim.control = find_control();
  CUresult result = sim.control == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  for (sim.count = 0; result == CUDA_SUCCESS && sim.count < kMaxDevices; ++sim.count) {
    Device& device = sim.devices[sim.count];
    device.index = static_cast<int>(sim.count);
    result = sim.control->card(device.index, &device.card);
    if (result != CUDA_SUCCESS) break;
  }
  if (sim.count > 0) return kSuccess;
  --sim.users;
  return kDriverNotLoaded;
}

Return shut_down() {
  Machine& sim = machine();
  const Locked lock(sim.mutex);
  if (sim.users == 0) return kUninitialized;
  --sim.users;
  return kSuccess;
}

Return check_initialised() {
  const Locked lock(machine().mutex);
  return machine().users > 0 ? kSuccess : kUninitialized;
}

Return device_count(unsigned* count) {
  if (const Return result = check_initialised(); result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  *count = machine().count;
  return kSuccess;
}

Return device_at(unsigned index, Device** out) {
  if (const Return result = check_initialised(); result != kSuccess) return result;
  if (out == nullptr || index >= machine().count) return kInvalidArgument;
  *out = &machine().devices[index];
  return kSuccess;
}

Return check_device(const Device* device) {
  if (const Return result = check_initialised(); result != kSuccess) return result;
  for (unsigned index = 0; index < machine().count; ++index)
    if (device == &machine().devices[index]) return kSuccess;
  return kInvalidArgument;
}

unsigned long long capacity_bytes(const Device& device) {
  SpillwaySimulatorUsage usage{};
  const SpillwaySimulatorControl& control = *machine().control;
  for (int ordinal = 0; control.usage(ordinal, &usage) == CUDA_SUCCESS; ++ordinal)
    if (usage.physical == static_cast<unsigned>(device.index)) return usage.capacity_bytes;
  return device.card.capacity_bytes;
}

std::vector<SpillwaySimulatorProcess> processes(const Device& device) {
  constexpr size_t kMost = 256;
  std::vector<SpillwaySimulatorProcess> found(kMost);
  found.resize(std::min(kMost, machine().control->processes(device.index, found.data(), kMost)));
  return found;
}

}  // namespace spillway::nvml
