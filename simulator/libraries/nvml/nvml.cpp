// NVML's functions about the library, the system and how devices are found.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "simulator/libraries/nvml/nvml_machine.h"

using namespace spillway::nvml;

namespace {

// The first driver for CUDA 13.2.
constexpr const char* kDriverVersion = "595.45.04";
constexpr const char* kNvmlVersion = "13.595.45.04";

Return copy_text(const std::string& text, char* out, unsigned size) {
  if (out == nullptr) return kInvalidArgument;
  if (text.size() >= size) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

Return find_by_uuid(const char* uuid, Device** out) {
  if (uuid == nullptr || out == nullptr) return kInvalidArgument;
  for (unsigned index = 0; device_at(index, out) == kSuccess; ++index)
    if (std::strcmp((*out)->card.uuid, uuid) == 0) return kSuccess;
  return check_initialised() == kSuccess ? kNotFound : kUninitialized;
}

// "0000:10:00.0" and "00000000:10:00.0".
Return find_by_bus(const char* text, Device** out) {
  unsigned domain = 0, bus = 0, slot = 0;
  if (text == nullptr || out == nullptr) return kInvalidArgument;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return kInvalidArgument;
  for (unsigned index = 0; device_at(index, out) == kSuccess; ++index)
    if (domain == 0 && slot == 0 && (*out)->card.pci_bus == static_cast<int>(bus)) return kSuccess;
  return check_initialised() == kSuccess ? kNotFound : kUninitialized;
}

Return refuse(const char* name, bool* said) {
  if (!*said)
    std::fprintf(stderr, "spillway simulator: %s is not simulated: NVML_ERROR_NOT_SUPPORTED\n", name);
  *said = true;
  return kNotSupported;
}

}  // namespace

extern "C" {

Return nvmlInit() {
  return initialise();
}
Return nvmlInit_v2() {
  return initialise();
}
Return nvmlInitWithFlags(unsigned) {
  return initialise();
}
Return nvmlShutdown() {
  return shut_down();
}

const char* nvmlErrorString(Return result) {
  switch (result) {
    case kSuccess:
      return "The operation was successful";
    case kUninitialized:
      return "NVML was not first initialized with nvmlInit()";
    case kInvalidArgument:
      return "A supplied argument is invalid";
    case kNotSupported:
      return "The requested operation is not available on target device";
    case kNotFound:
      return "A query to find an object was unsuccessful";
    case kInsufficientSize:
      return "An input argument is not large enough";
    case kDriverNotLoaded:
      return "NVIDIA driver is not loaded";
    case kArgumentVersionMismatch:
      return "The provided version is invalid/unsupported";
  }
  return "Unknown Error";
}

Return nvmlSystemGetDriverVersion(char* out, unsigned size) {
  if (const Return result = check_initialised(); result != kSuccess) return result;
  return copy_text(kDriverVersion, out, size);
}
Return nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  return copy_text(kNvmlVersion, out, size);
}
Return nvmlSystemGetCudaDriverVersion(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = cuda_version();
  return kSuccess;
}
Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}
Return nvmlSystemGetProcessName(unsigned pid, char* out, unsigned size) {
  if (const Return result = check_initialised(); result != kSuccess) return result;
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string name;
  if (!std::getline(file, name, '\0')) return kNotFound;
  return copy_text(name, out, size);
}

Return nvmlDeviceGetCount(unsigned* count) {
  return device_count(count);
}
Return nvmlDeviceGetCount_v2(unsigned* count) {
  return device_count(count);
}
Return nvmlDeviceGetHandleByIndex(unsigned index, Device** out) {
  return device_at(index, out);
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** out) {
  return device_at(index, out);
}
Return nvmlDeviceGetHandleByUUID(const char* uuid, Device** out) {
  return find_by_uuid(uuid, out);
}
Return nvmlDeviceGetHandleByPciBusId(const char* bus, Device** out) {
  return find_by_bus(bus, out);
}
Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Device** out) {
  return find_by_bus(bus, out);
}
Return nvmlDeviceGetName(const Device* device, char* out, unsigned size) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  return copy_text(device->card.name, out, size);
}
Return nvmlDeviceGetUUID(const Device* device, char* out, unsigned size) {
  if (const Return result = check_device(device); result != kSuccess) return result;
  return copy_text(device->card.uuid, out, size);
}

#define SPILLWAY_NVML_REFUSED(name) \
  Return name() {                   \
    static bool said = false;       \
    return refuse(#name, &said);    \
  }
#include "simulator/libraries/nvml/nvml_refused.inc"
#undef SPILLWAY_NVML_REFUSED
}
