#include "libtorch/rehearsal/probe/simulator.h"

#include <dlfcn.h>

namespace spillway::rehearsal {
namespace {

const SpillwaySimulatorControl* find() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto control =
      library == nullptr
          ? nullptr
          : reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(library, "spillway_simulator_control"));
  const SpillwaySimulatorControl* table = control == nullptr ? nullptr : control();
  return table != nullptr && table->version >= SPILLWAY_SIMULATOR_CONTROL_VERSION ? table : nullptr;
}

}  // namespace

const SpillwaySimulatorControl* simulator() {
  static const SpillwaySimulatorControl* const found = find();
  return found;
}

}  // namespace spillway::rehearsal
