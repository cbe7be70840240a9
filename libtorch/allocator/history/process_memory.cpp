#include "libtorch/allocator/history/process_memory.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace spillway::libtorch {
namespace {

// Of nvml.h, which not every CUDA installation brings.
constexpr int kSuccess = 0, kInsufficientSize = 7;
struct Process {
  unsigned id;
  unsigned long long bytes;  // all bits set: not known
};

struct Nvml {
  int (*init)() = nullptr;
  int (*find)(const char* bus, void** device) = nullptr;
  int (*list)(void* device, unsigned* count, Process* out) = nullptr;

  bool works() const { return list != nullptr; }
};

Nvml load() {
  Nvml nvml;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  nvml.init = reinterpret_cast<decltype(nvml.init)>(dlsym(library, "nvmlInit_v2"));
  nvml.find = reinterpret_cast<decltype(nvml.find)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  nvml.list = reinterpret_cast<decltype(nvml.list)>(dlsym(library, "nvmlDeviceGetComputeRunningProcesses"));
  if (nvml.init == nullptr || nvml.find == nullptr || nvml.init() != kSuccess) return {};
  return nvml;
}

}  // namespace

std::vector<ProcessMemory> processes_on(c10::DeviceIndex device) {
  static const Nvml nvml = load();
  std::array<char, 32> bus{};
  void* card = nullptr;
  if (!nvml.works() || cudaDeviceGetPCIBusId(bus.data(), bus.size(), device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // must not hide the failure that is being reported
    return {};
  }
  if (nvml.find(bus.data(), &card) != kSuccess) return {};
  std::vector<Process> processes(8);
  auto count = static_cast<unsigned>(processes.size());
  int result = nvml.list(card, &count, processes.data());
  if (result == kInsufficientSize) {
    count += 8;  // some may come meanwhile
    processes.resize(count);
    result = nvml.list(card, &count, processes.data());
  }
  if (result != kSuccess) return {};
  std::vector<ProcessMemory> found;
  for (unsigned i = 0; i < std::min<size_t>(count, processes.size()); ++i)
    if (processes[i].bytes != ~0ULL) found.push_back({processes[i].id, processes[i].bytes});
  return found;
}

}  // namespace spillway::libtorch
