#include "simulator/libraries/handle_memory.h"

#include <dlfcn.h>

#include <mutex>
#include <set>

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

// With its context, as a library's own call of the runtime makes it.
cudaError_t current_device(int* device) {
  if (cudaError_t error = taken(cudaGetDevice(device)); error != cudaSuccess) return error;
  if (cudaError_t error = taken(cudaFree(nullptr)); error != cudaSuccess) return error;
  return simulator() == nullptr ? cudaErrorInsufficientDriver : cudaSuccess;
}

cudaError_t charge_device(int device, const char* label, uint64_t bytes) {
  switch (simulator()->charge(device, label, bytes)) {
    case CUDA_SUCCESS:
      return cudaSuccess;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return cudaErrorMemoryAllocation;
    default:
      return cudaErrorInitializationError;
  }
}

// The library's code on each device: never destroyed, since programs may still call while they exit.
struct Code {
  std::mutex mutex;
  std::set<int> devices;
};
Code& code() {
  static auto* const all = new Code;
  return *all;
}

}  // namespace

cudaError_t HandleMemory::charge(const char* label, uint64_t bytes) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  if (cudaError_t error = charge_device(device, label, bytes); error != cudaSuccess) return error;
  label_ = label;
  device_ = device;
  bytes_ = bytes;
  return cudaSuccess;
}

cudaError_t HandleMemory::charge_row(const char* row) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  return charge(row, simulator()->overhead(device, row));
}

HandleMemory::~HandleMemory() {
  if (bytes_ > 0) simulator()->discharge(device_, label_, bytes_);
}

cudaError_t charge_code(const char* row) {
  int device = 0;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  const std::lock_guard lock(code().mutex);
  if (code().devices.contains(device)) return cudaSuccess;
  const uint64_t bytes = simulator()->overhead(device, row);
  const cudaError_t error = bytes == 0 ? cudaSuccess : charge_device(device, row, bytes);
  if (error == cudaSuccess) code().devices.insert(device);
  return error;
}

}  // namespace spillway::stand_in
