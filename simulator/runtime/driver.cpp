#include "simulator/runtime/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>

namespace spillway::runtime {
namespace {

// The version whose functions are the ones that cuda.h declares without a suffix: from 13.0 on
// cuGetProcAddress gives a cuCtxGetDevice and a cuCtxSynchronize that take a context.
constexpr int kInterfaceVersion = 12090;

void* find(const Driver& driver, const char* name) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult found;
  if (driver.get_proc_address(name, &address, kInterfaceVersion, CU_GET_PROC_ADDRESS_DEFAULT, &found) !=
      CUDA_SUCCESS) {
    return nullptr;
  }
  return address;
}

std::atomic<int> served_version{CUDART_VERSION};  // of CUDA, by the libraries that registered kernels

// A runtime needs a driver of its own major version or a newer one; the minor version may be older.
bool is_sufficient(const Driver& driver) {
  int version = 0;
  return driver.cuInit != nullptr && driver.cuDriverGetVersion != nullptr &&
         driver.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
         version / 1000 >= served_version.load() / 1000;
}

Driver load() {
  Driver loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "spillway simulator: the runtime finds no driver: %s\n", dlerror());
    return loaded;
  }
  loaded.get_proc_address =
      reinterpret_cast<decltype(loaded.get_proc_address)>(dlsym(library, "cuGetProcAddress_v2"));
  auto control =
      reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(library, "spillway_simulator_control"));
  if (loaded.get_proc_address == nullptr || control == nullptr) {
    std::fprintf(
        stderr,
        "spillway simulator: the libcuda.so.1 that was found is not the simulator's: put the folder of the "
        "simulated libraries first in LD_LIBRARY_PATH\n");
    return loaded;
  }
  loaded.control = control();
#define SPILLWAY_RUNTIME_FIND(name) \
  loaded.name = reinterpret_cast<decltype(loaded.name)>(find(loaded, #name));
  SPILLWAY_RUNTIME_DRIVER(SPILLWAY_RUNTIME_FIND)
#undef SPILLWAY_RUNTIME_FIND
  loaded.state = is_sufficient(loaded) ? to_runtime(loaded.cuInit(0)) : cudaErrorInsufficientDriver;
  return loaded;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

}  // namespace spillway::runtime

// libcudart.so.12 says so for a process whose kernels are of CUDA 12, before the driver is looked for.
extern "C" void cudaSpillwayServe(int version) {
  spillway::runtime::served_version.store(version);
}
