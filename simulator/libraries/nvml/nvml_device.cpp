// NVML's functions about one device: memory, processes, identity, clocks.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simulator/libraries/nvml/nvml_machine.h"

using namespace spillway::nvml;

namespace {

// Answers one number about a device.
template <class Value>
Return answer(const Device* device, Value* out, Value value) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  *out = value;
  return kSuccess;
}

// What is free is what cuMemGetInfo says.
struct MemoryState {
  unsigned long long total, reserved, free, used;
};
MemoryState memory_of(const Device& device) {
  const unsigned long long capacity = capacity_bytes(device);
  const unsigned long long reserved = device.card.framebuffer_bytes - device.card.capacity_bytes;
  unsigned long long used = 0;
  for (const SpillwaySimulatorProcess& process : processes(device)) used += process.charged_bytes;
  used = std::min(used, capacity);
  return {capacity + reserved, reserved, capacity - used, used};
}

// NVML's protocol of lists: `count` is the room before and the number afterwards.
template <class Entry>
Return list_processes(const Device* device, unsigned* count, Entry* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  const auto found = processes(*device);
  const unsigned room = *count;
  *count = static_cast<unsigned>(found.size());
  if (found.size() > room) return kInsufficientSize;
  if (out == nullptr) return found.empty() ? kSuccess : kInvalidArgument;
  for (size_t i = 0; i < found.size(); ++i) {
    out[i] = {};
    out[i].pid = static_cast<unsigned>(found[i].id);
    out[i].used_bytes = found[i].charged_bytes;
    if constexpr (requires { out->gpu_instance; }) out[i].gpu_instance = out[i].compute_instance = 0xffffffff;
  }
  return kSuccess;
}

Return list_none(const Device* device, unsigned* count) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

Return clock_of(const Device* device, unsigned kind, unsigned* mhz) {
  constexpr unsigned kMemory = 2, kKinds = 4;
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (kind >= kKinds) return kInvalidArgument;
  const int khz = kind == kMemory ? device->card.memory_clock_khz : device->card.clock_khz;
  return answer(device, mhz, static_cast<unsigned>(khz / 1000));
}

// NVML_DEVICE_ARCH_VOLTA, _TURING, _AMPERE, _ADA, _HOPPER, _BLACKWELL.
unsigned architecture_of(const SpillwaySimulatorCard& card) {
  if (card.major == 7) return card.minor < 5 ? 5 : 6;
  if (card.major == 8) return card.minor < 9 ? 7 : 8;
  return card.major == 9 ? 9 : 10;
}

void fill_bus(const Device& device, PciInfo* out) {
  *out = {};
  out->bus = static_cast<unsigned>(device.card.pci_bus);
  std::snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus);
  std::snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
  out->device_id = 0x10de;  // NVIDIA; which of its products is not known
}

}  // namespace

extern "C" {

Return nvmlDeviceGetMemoryInfo(const Device* device, Memory* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  const MemoryState now = memory_of(*device);
  *out = {.total = now.total, .free = now.free, .used = now.total - now.free};
  return kSuccess;
}

Return nvmlDeviceGetMemoryInfo_v2(const Device* device, MemoryV2* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  if (out->version != version_of<MemoryV2>(2)) return kArgumentVersionMismatch;
  const MemoryState now = memory_of(*device);
  *out = {.version = out->version,
          .total = now.total,
          .reserved = now.reserved,
          .free = now.free,
          .used = now.used};
  return kSuccess;
}

// The window through which the host reaches the card: of the data-centre cards it covers all memory.
Return nvmlDeviceGetBAR1MemoryInfo(const Device* device, Memory* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  unsigned long long window = 256ull << 20;
  while (window < device->card.framebuffer_bytes) window *= 2;
  *out = {.total = window, .free = window, .used = 0};
  return kSuccess;
}

Return nvmlDeviceGetComputeRunningProcesses(const Device* device, unsigned* count, ProcessV1* out) {
  return list_processes(device, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v2(const Device* device, unsigned* count, Process* out) {
  return list_processes(device, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(const Device* device, unsigned* count, Process* out) {
  return list_processes(device, count, out);
}
Return nvmlDeviceGetGraphicsRunningProcesses(const Device* device, unsigned* count, void*) {
  return list_none(device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v2(const Device* device, unsigned* count, void*) {
  return list_none(device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(const Device* device, unsigned* count, void*) {
  return list_none(device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses(const Device* device, unsigned* count, void*) {
  return list_none(device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(const Device* device, unsigned* count, void*) {
  return list_none(device, count);
}

// Kernels take no time here, so a simulated card is never busy when it is asked.
Return nvmlDeviceGetUtilizationRates(const Device* device, Utilization* out) {
  return answer(device, out, Utilization{});
}

Return nvmlDeviceGetIndex(const Device* device, unsigned* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  return answer(device, out, static_cast<unsigned>(device->index));
}
Return nvmlDeviceGetMinorNumber(const Device* device, unsigned* out) {
  return nvmlDeviceGetIndex(device, out);
}
Return nvmlDeviceGetPciInfo_v3(const Device* device, PciInfo* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  fill_bus(*device, out);
  return kSuccess;
}
Return nvmlDeviceGetPciInfo_v2(const Device* device, PciInfoV2* out) {
  PciInfo info;
  if (const Return result = nvmlDeviceGetPciInfo_v3(device, &info); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  *out = {};
  std::memcpy(out->bus_id, info.legacy_bus_id, sizeof out->bus_id);
  out->bus = info.bus;
  out->device_id = info.device_id;
  return kSuccess;
}
Return nvmlDeviceGetPciInfo(const Device* device, PciInfoV2* out) {
  return nvmlDeviceGetPciInfo_v2(device, out);
}
Return nvmlDeviceGetCudaComputeCapability(const Device* device, int* major, int* minor) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (major == nullptr || minor == nullptr) return kInvalidArgument;
  *major = device->card.major;
  *minor = device->card.minor;
  return kSuccess;
}
Return nvmlDeviceGetArchitecture(const Device* device, unsigned* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  return answer(device, out, architecture_of(device->card));
}
Return nvmlDeviceGetBrand(const Device* device, unsigned* out) {
  constexpr unsigned kGeForce = 5, kNvidia = 14;
  if (const Return result = check_device(device); result != kSuccess) return result;
  return answer(device, out, std::strstr(device->card.name, "GeForce") == nullptr ? kNvidia : kGeForce);
}
Return nvmlDeviceGetMemoryBusWidth(const Device* device, unsigned* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  return answer(device, out, static_cast<unsigned>(device->card.memory_bus_bits));
}

Return nvmlDeviceGetClockInfo(const Device* device, unsigned kind, unsigned* mhz) {
  return clock_of(device, kind, mhz);
}
Return nvmlDeviceGetMaxClockInfo(const Device* device, unsigned kind, unsigned* mhz) {
  return clock_of(device, kind, mhz);
}
Return nvmlDeviceGetMaxPcieLinkGeneration(const Device* device, unsigned* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  return answer(device, out, static_cast<unsigned>(device->card.pcie_generation));
}
Return nvmlDeviceGetCurrPcieLinkGeneration(const Device* device, unsigned* out) {
  return nvmlDeviceGetMaxPcieLinkGeneration(device, out);
}

Return nvmlDeviceGetEccMode(const Device* device, unsigned* current, unsigned* pending) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (!device->card.ecc) return kNotSupported;
  if (pending != nullptr) *pending = 1;
  return answer(device, current, 1u);
}
// No simulated card is divided, and none may be.
Return nvmlDeviceGetMigMode(const Device* device, unsigned*, unsigned*) {
  const Return result = check_device(device);
  return result == kSuccess ? kNotSupported : result;
}

#define SPILLWAY_NVML_ALWAYS(function, value)            \
  Return function(const Device* device, unsigned* out) { \
    return answer(device, out, value);                   \
  }
SPILLWAY_NVML_ALWAYS(nvmlDeviceIsMigDeviceHandle, 0u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetMultiGpuBoard, 0u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetComputeMode, 0u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetPersistenceMode, 1u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetDisplayMode, 0u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetDisplayActive, 0u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetPerformanceState, 0u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetMaxPcieLinkWidth, 16u)
SPILLWAY_NVML_ALWAYS(nvmlDeviceGetCurrPcieLinkWidth, 16u)
#undef SPILLWAY_NVML_ALWAYS

Return nvmlDeviceGetP2PStatus(const Device* device, const Device* other, unsigned, unsigned* out) {
  if (const Return result = check_device(other); result != kSuccess) return result;
  return answer(device, out, 0u);
}

// No fabric: what a card outside an NVSwitch system says.
Return nvmlDeviceGetGpuFabricInfoV(const Device* device, FabricInfo* out) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  const unsigned version = out->version;
  *out = {};
  out->version = version;
  return kSuccess;
}
}
