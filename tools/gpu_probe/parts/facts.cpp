// The driver, the card, and the machine around it.
#include <dirent.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <string>

#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr struct {
  const char* name;
  CUdevice_attribute which;
} kAttributes[] = {
    {"capability major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {"capability minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"copy engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {"L2 bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"host NUMA id", CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID},
    {"device NUMA id", CU_DEVICE_ATTRIBUTE_NUMA_ID},
    {"virtual memory", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"host NUMA virtual memory", CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"host virtual memory", CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"file descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
    {"fabric handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
    {"GPUDirect RDMA with mapped memory", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
    {"memory pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {"pageable memory access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
    {"host native atomics", CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
    {"memory of registered host", CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
    {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {"compute mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    {"compute preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void ask_card() {
  char name[128] = "";
  size_t total = 0;
  int version = 0, count = 0;
  device();
  cuda().cuDriverGetVersion(&version);
  cuda().cuDeviceGetCount(&count);
  cuda().cuDeviceGetName(name, sizeof name, device());
  cuda().cuDeviceTotalMem(&total, device());
  say("CUDA version of the driver", version);
  say("devices", count);
  say("card", name);
  say("memory", uint64_t{total}, "bytes");
  say("free with the first context", free_bytes(), "bytes");
  say("functions that this driver lacks", cuda().missing);
  for (const auto& [text, which] : kAttributes) say(text, attribute(which));
  const CUmemAllocationProp wanted = properties(on_device());
  for (const auto which : {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    size_t bytes = 0;
    cuda().cuMemGetAllocationGranularity(&bytes, &wanted, which);
    say("granularity", uint64_t{bytes}, "bytes",
        {{"recommended", which != CU_MEM_ALLOC_GRANULARITY_MINIMUM}});
  }
}

void ask_peers() {
  int count = 0;
  cuda().cuDeviceGetCount(&count);
  for (CUdevice from = 0; from < count; ++from)
    for (CUdevice to = 0; to < count; ++to) {
      if (from == to) continue;
      int access = -1, atomics = -1, rank = -1;
      cuda().cuDeviceCanAccessPeer(&access, from, to);
      cuda().cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to);
      cuda().cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to);
      say("peer access", access, "",
          {{"from", from}, {"to", to}, {"native_atomics", atomics}, {"rank", rank}});
    }
}

// The regions of the card that the processor can see; the largest is BAR1.
void ask_bus() {
  char id[32] = "";
  if (cuda().cuDeviceGetPCIBusId(id, sizeof id, device()) != CUDA_SUCCESS) return;
  std::string folder = id;
  std::transform(folder.begin(), folder.end(), folder.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  folder = "/sys/bus/pci/devices/" + folder + "/";
  say("bus id", id);
  for (const char* file :
       {"numa_node", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width"})
    say(file, first_line(folder + file));
  std::ifstream regions(folder + "resource");
  uint64_t largest = 0;
  for (std::string line; std::getline(regions, line);) {
    unsigned long long start = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx %llx", &start, &end) == 2 && end > start)
      largest = std::max<uint64_t>(largest, end - start + 1);
  }
  say("largest region on the bus", largest, "bytes");
}

void ask_nodes() {
  const std::string folder = "/sys/devices/system/node/";
  DIR* opened = opendir(folder.c_str());
  if (!opened) return say("NUMA nodes", "none: the system shows no nodes");
  while (const dirent* entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name.rfind("node", 0) != 0 || name.size() < 5 ||
        std::isdigit(static_cast<unsigned char>(name[4])) == 0)
      continue;
    say("NUMA node", name, "",
        {{"cpus", first_line(folder + name + "/cpulist")},
         {"memory", first_line(folder + name + "/meminfo")}});
  }
  closedir(opened);
}

void ask_system() {
  rlimit locked = {}, files = {};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  getrlimit(RLIMIT_NOFILE, &files);
  say("locked memory", locked.rlim_cur == RLIM_INFINITY ? UINT64_MAX : uint64_t{locked.rlim_cur}, "bytes");
  say("open files", uint64_t{files.rlim_cur});
  say("processors", static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);)
    if (line.rfind("MemTotal", 0) == 0 || line.rfind("MemAvailable", 0) == 0) say("system memory", line);
  say("memory limit of the group", first_line("/sys/fs/cgroup/memory.max"));
  say("hypervisor", first_line("/sys/hypervisor/type") + first_line("/sys/class/dmi/id/sys_vendor"));
}

}  // namespace

void ask_facts() {
  ask_card();
  ask_peers();
  ask_bus();
  ask_nodes();
  ask_system();
}

}  // namespace spillway::probe
