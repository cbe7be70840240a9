#include "simulator/libraries/nccl/device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string_view>

#include "simulator/libraries/labelled_page.h"

namespace spillway::nccl {
const SpillwaySimulatorControl* control() {
  return stand_in::control();
}

bool computes() {
  static const bool value = control() && control()->mode() == SPILLWAY_SIMULATOR_COMPUTE;
  return value;
}

void* host_view(const void* device_address) {
  // Registered host memory is its own view; the host's pages that devices map are seen as a device's are.
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, device_address) != cudaSuccess ||
      attributes.type == cudaMemoryTypeUnregistered || attributes.hostPointer != nullptr) {
    cudaGetLastError();
    return const_cast<void*>(device_address);
  }
  return reinterpret_cast<void*>(reinterpret_cast<intptr_t>(device_address) + control()->alias_offset());
}

int current_device() {
  int device = -1;
  if (!control() || cudaGetDevice(&device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  return device;
}

std::string card_name(int device) {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "";
}

std::string card_identity(int device) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string_view list = visible ? visible : "";
  for (int skip = device; skip > 0 && !list.empty(); --skip) {
    const size_t comma = list.find(',');
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  const std::string_view entry = list.substr(0, list.find(','));
  return entry.empty() ? std::to_string(device) : std::string(entry);
}

OnDevice::OnDevice(int device) : before_(-1) {
  if (cudaGetDevice(&before_) == cudaSuccess && before_ != device) cudaSetDevice(device);
}

OnDevice::~OnDevice() {
  int now = -1;
  if (before_ >= 0 && cudaGetDevice(&now) == cudaSuccess && now != before_) cudaSetDevice(before_);
}

void* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &found, 12090, cudaEnableDefault, &result) != cudaSuccess)
    return nullptr;
  return result == cudaDriverEntryPointSuccess ? found : nullptr;
}

}  // namespace spillway::nccl
