#include "simulator/libraries/handle_memory.h"

#include <dlfcn.h>

#include "simulator/libraries/computation.h"
#include "spillway/driver/simulator_control.h"

namespace spillway::stand_in {
namespace {

const SpillwaySimulatorControl* find_control() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto control =
      reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(library, "spillway_simulator_control"));
  return control == nullptr ? nullptr : control();
}

const SpillwaySimulatorControl* simulator() {
  static const SpillwaySimulatorControl* const found = find_control();
  return found;
}

}  // namespace

uint64_t cublas_handle_bytes() {
  const int major = capability_major();
  if (major == 9) return 32 * kMiB;
  return major >= 10 ? 12 * kMiB : 4 * kMiB;
}

cudaError_t HandleMemory::charge(const char* label, uint64_t bytes) {
  int device = 0;
  if (cudaError_t error = taken(cudaGetDevice(&device)); error != cudaSuccess) return error;
  if (cudaError_t error = taken(cudaFree(nullptr)); error != cudaSuccess) return error;
  if (simulator() == nullptr) return cudaErrorInsufficientDriver;
  switch (simulator()->charge(device, label, bytes)) {
    case CUDA_SUCCESS:
      label_ = label;
      device_ = device;
      bytes_ = bytes;
      return cudaSuccess;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return cudaErrorMemoryAllocation;
    default:
      return cudaErrorInitializationError;
  }
}

HandleMemory::~HandleMemory() {
  if (bytes_ > 0) simulator()->discharge(device_, label_, bytes_);
}

}  // namespace spillway::stand_in
