// What a device keeps for the memory of its graphs, as the program asks for it and trims it.
#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/memory.h"

using namespace spillway::simulator;

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  SPILLWAY_SIM_ENTER(cuDeviceGraphMemTrim);
  Device* found = sim.device(device);
  if (!found) return CUDA_ERROR_INVALID_DEVICE;
  trim(found->graph_pool, 0);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  SPILLWAY_SIM_ENTER(cuDeviceGetGraphMemAttribute);
  const Device* found = sim.device(device);
  if (!found) return CUDA_ERROR_INVALID_DEVICE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Pool& pool = found->graph_pool;
  auto* bytes = static_cast<cuuint64_t*>(value);
  switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *bytes = pool.used_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *bytes = pool.used_high_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *bytes = pool.reserved_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *bytes = pool.reserved_high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  SPILLWAY_SIM_ENTER(cuDeviceSetGraphMemAttribute);
  Device* found = sim.device(device);
  if (!found) return CUDA_ERROR_INVALID_DEVICE;
  const bool high = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (!value || !high || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  Pool& pool = found->graph_pool;
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
    pool.used_high_bytes = pool.used_bytes;
  else
    pool.reserved_high_bytes = pool.reserved_bytes;
  return CUDA_SUCCESS;
}
