// cudaDeviceProp as programs of CUDA 12 read it: larger, with members that are attributes alone in CUDA 13.
#include <cstring>

#include "simulator/runtime/cuda_12/forward.h"

namespace {

struct DeviceProperties {
#define SPILLWAY_SAME(type, name, bounds) type name bounds;
#define SPILLWAY_GONE(name, attribute) int name;
#include "simulator/runtime/cuda_12/device_properties.inc"
#undef SPILLWAY_SAME
#undef SPILLWAY_GONE
  int reserved[63];
};
static_assert(sizeof(DeviceProperties) == 1032);
static_assert(offsetof(DeviceProperties, unifiedFunctionPointers) == 776);

}  // namespace

extern "C" cudaError_t cudaGetDeviceProperties_v2(DeviceProperties* properties, int device) {
  cudaDeviceProp newer{};
  const cudaError_t error =
      SPILLWAY_NEWER(cudaGetDeviceProperties)(properties == nullptr ? nullptr : &newer, device);
  if (error != cudaSuccess) return error;
  std::memset(properties, 0, sizeof *properties);
  const auto ask = SPILLWAY_NEWER(cudaDeviceGetAttribute);
#define SPILLWAY_SAME(type, name, bounds) std::memcpy(&properties->name, &newer.name, sizeof newer.name);
#define SPILLWAY_GONE(name, attribute) ask(&properties->name, attribute, device);
#include "simulator/runtime/cuda_12/device_properties.inc"
#undef SPILLWAY_SAME
#undef SPILLWAY_GONE
  return cudaSuccess;
}
