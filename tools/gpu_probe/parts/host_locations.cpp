// Point 2 and 3 of what real drivers do: which host locations a driver takes, and whether the processor may
// touch them.
#include <string>

#include "tools/gpu_probe/children.h"
#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

struct Trial {
  const char* name;
  CUmemLocationType type;
  int id;  // -1: the node that the device names
};
constexpr Trial kTrials[] = {
    {"the device's node", CU_MEM_LOCATION_TYPE_HOST_NUMA, -1},
    {"node 0", CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
    {"node 1", CU_MEM_LOCATION_TYPE_HOST_NUMA, 1},
    {"host", CU_MEM_LOCATION_TYPE_HOST, 0},
    {"the thread's node", CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0},
};

Kind kind_of(const Trial& trial) {
  const int id = trial.id >= 0 ? trial.id : attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
  return {.type = trial.type, .id = id};
}

CUresult allow_host(const Mapped& mapped, const Kind& kind) {
  const CUmemAccessDesc access = {.location = {.type = kind.type, .id = kind.id},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuda().cuMemSetAccess(mapped.base(), mapped.bytes(), &access, 1);
}

void try_device(const Trial& trial) {
  const Kind kind = kind_of(trial);
  const CUmemAllocationProp wanted = properties(kind);
  size_t granularity = 0;
  const CUresult asked =
      cuda().cuMemGetAllocationGranularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const Mapped mapped(2 * kMiB, 1, kind);
  say("mapped for the device", mapped.result, "",
      {{"location", trial.name},
       {"id", kind.id},
       {"granularity", asked == CUDA_SUCCESS ? uint64_t{granularity} : 0}});
  if (mapped.result != CUDA_SUCCESS) return;
  uint32_t value = 0x5eed, seen = 0;
  cuda().cuMemcpyHtoD(mapped.base(), &value, 4);
  cuda().cuMemcpyDtoH(&seen, mapped.base(), 4);
  say("bytes copied there come back", seen == value, "", {{"location", trial.name}});
  for (const auto& [name, which] : {std::pair{"memory type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
                                    std::pair{"device ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL}}) {
    int found = -1;
    const CUresult result = cuda().cuPointerGetAttribute(&found, which, mapped.base());
    say(name, result == CUDA_SUCCESS ? found : -1, "", {{"location", trial.name}, {"result", result}});
  }
}

// Ends by a signal where the processor may not.
void try_processor(const Trial& trial, bool ask_first) {
  const Kind kind = kind_of(trial);
  const Mapped mapped(2 * kMiB, 1, kind);
  if (mapped.result != CUDA_SUCCESS) _Exit(9);
  if (ask_first) say("access for the processor", allow_host(mapped, kind), "", {{"location", trial.name}});
  auto* place = reinterpret_cast<volatile uint32_t*>(mapped.base());
  *place = 0xbeef;
  uint32_t seen = 0;
  cuda().cuMemcpyDtoH(&seen, mapped.base(), 4);
  say("the device sees what the processor wrote", seen == 0xbeef, "", {{"location", trial.name}});
}

}  // namespace

void ask_host_locations() {
  // Forks come before this process calls the driver.
  for (const Trial& trial : kTrials) {
    const std::string device_side = run_in_fork(8, [&] { try_device(trial); });
    if (device_side != "done") say("the trial", device_side, "", {{"location", trial.name}});
    for (const bool ask_first : {false, true}) {
      const std::string how = run_in_fork(8, [&] { try_processor(trial, ask_first); });
      if (how == "exit code 9") break;
      say("the processor touches it", how == "done" ? "yes" : how, "",
          {{"location", trial.name}, {"after_access_was_given", ask_first}});
    }
  }
}

}  // namespace spillway::probe
