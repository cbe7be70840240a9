// The part of NVML's binary interface that is used here. nvml.h does not come with every CUDA installation;
// these layouts are fixed, as programs in every language (pynvml, c10) carry copies of them.
//
// Thread-safety, ownership, errors: plain values. Units: bytes, MHz, percent.
#pragma once
#include <cstdint>

namespace spillway::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kArgumentVersionMismatch = 25,
};

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id, reserved[4];
};
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long used_bytes;
};
struct Process {  // of the functions _v2 and _v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct FabricInfo {  // the beginning of nvmlGpuFabricInfo_v2_t and _v3_t
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};

// A structure's version says its size too.
template <class Structure>
constexpr unsigned version_of(unsigned number) {
  return static_cast<unsigned>(sizeof(Structure)) | number << 24;
}

}  // namespace spillway::nvml
