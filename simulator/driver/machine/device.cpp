// Devices: their attributes and names, from the table of cards.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/entry/driver_version.h"

namespace spillway::simulator {
namespace {

struct Attribute {
  CUdevice_attribute which;
  int value;
};
// What all cards have in common.
constexpr Attribute kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
};

CUresult find_device(CUdevice number, Device** out) {
  *out = machine().device(number);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

std::optional<int> architecture_attribute(CUdevice_attribute which, const cards::Architecture& known) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return known.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return known.minor;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return known.threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return known.blocks_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return known.shared_bytes_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return known.shared_bytes_per_block_optin;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return known.reserved_shared_bytes_per_block;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return known.single_to_double_ratio;
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
      return known.major >= 8 ? 134213632 : 0;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      return known.major >= 9;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      return known.major >= 9 ? 4 : 1;
    default:
      return std::nullopt;
  }
}

std::optional<int> machine_attribute(CUdevice_attribute which, const Device& device) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return cards::pci_bus(device.physical);
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      return machine().config.driver.legacy_ipc;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return machine().config.driver.host_numa_id;
    default:
      return std::nullopt;
  }
}

std::optional<int> card_attribute(CUdevice_attribute which, const cards::Card& card) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return card.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return card.clock_khz;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return card.memory_clock_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return card.memory_bus_bits;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return card.l2_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      return cards::persisting_l2_bytes(card);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return card.copy_engines;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
      return card.ecc;
    default:
      return architecture_attribute(which, *cards::find_architecture(card.major, card.minor));
  }
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;
namespace cards = spillway::cards;

CUresult cuInit(unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuInit);
  return Flags ? CUDA_ERROR_INVALID_VALUE : sim.initialise();
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SPILLWAY_SIM_ENTER(cuDeviceGet);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  SPILLWAY_SIM_ENTER(cuDeviceGetCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(sim.devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceGetName);
  if (!name || len < 1) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(len), "%s", std::string(machine().config.card.name).c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceGetUuid_v2);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, cards::uuid(sim.device(dev)->physical).data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceTotalMem);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (const CUresult result = find_device(dev, &device); result != CUDA_SUCCESS) return result;
  *bytes = device->account.capacity_bytes();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceGetAttribute);
  if (!pi || attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (const auto value = machine_attribute(attrib, *sim.device(dev))) {
    *pi = *value;
    return CUDA_SUCCESS;
  }
  if (const auto value = card_attribute(attrib, sim.config.card)) {
    *pi = *value;
    return CUDA_SUCCESS;
  }
  const auto* found = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                   [&](const Attribute& known) { return known.which == attrib; });
  *pi = found == std::end(kAttributes) ? 0 : found->value;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceComputeCapability);
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *major = sim.config.card.major;
  *minor = sim.config.card.minor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceGetPCIBusId);
  if (!pciBusId || len < 13) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0",
                cards::pci_bus(sim.device(dev)->physical));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  SPILLWAY_SIM_ENTER(cuDeviceGetByPCIBusId);
  if (!dev || !pciBusId) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, number = 0, slot = 0;
  if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &number, &slot) != 3 &&
      std::sscanf(pciBusId, "%x:%x", &number, &slot) != 2)
    return CUDA_ERROR_INVALID_VALUE;
  for (const auto& device : sim.devices) {
    if (domain != 0 || slot != 0 || cards::pci_bus(device->physical) != static_cast<int>(number)) continue;
    *dev = device->ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}
