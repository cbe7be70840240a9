// Page-locked host memory.
#include <algorithm>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/host_memory.h"

namespace spillway::simulator {

CUresult allocate_host(void** out, uint64_t bytes, HostBlock block) {
  Machine& sim = machine();
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes > UINT64_MAX - kHostPage) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t rounded = (bytes + kHostPage - 1) / kHostPage * kHostPage;
  void* address = sim.host.allocate(rounded);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  block.bytes = rounded;
  block.device = current_context()->device->ordinal;
  sim.host.add(reinterpret_cast<uintptr_t>(address), block);
  *out = address;
  return CUDA_SUCCESS;
}

namespace {

CUresult allocate(Call& call, void** out, uint64_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = allocate_host(out, bytes, {.flags = flags, .site = call.site()});
  if (result == CUDA_SUCCESS) call.charge_pinning(bytes);
  return result;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemAllocHost(void** pp, size_t bytesize) {
  SPILLWAY_SIM_ENTER(cuMemAllocHost);
  return allocate(call, pp, bytesize, 0);
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuMemHostAlloc);
  return allocate(call, pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void* p) {
  SPILLWAY_SIM_ENTER(cuMemFreeHost);
  if (!p) return CUDA_SUCCESS;
  settle(pending_anywhere());
  const auto block = sim.host.blocks().find(reinterpret_cast<uintptr_t>(p));
  if (block == sim.host.blocks().end() || block->second.registered || block->second.managed)
    return CUDA_ERROR_INVALID_VALUE;
  sim.clock.wait_until(block->second.use.end);
  sim.host.free(p, block->second.bytes);
  sim.host.remove(block);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuMemHostRegister);
  if (!p || bytesize == 0 || (Flags & ~15u) || reinterpret_cast<uintptr_t>(p) + bytesize < bytesize)
    return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (sim.host.overlaps(p, bytesize)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  sim.host.add(reinterpret_cast<uintptr_t>(p), {.bytes = bytesize,
                                                .flags = Flags,
                                                .registered = true,
                                                .device = current_context()->device->ordinal,
                                                .site = call.site()});
  call.charge_pinning(bytesize);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* p) {
  SPILLWAY_SIM_ENTER(cuMemHostUnregister);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  const auto block = sim.host.blocks().find(reinterpret_cast<uintptr_t>(p));
  if (block == sim.host.blocks().end() || !block->second.registered)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (block->second.use.end > sim.clock.known())
    sim.referee.in_flight(
        "host memory " + describe_range(block->first, block->second.bytes) + " unregistered", call.site(),
        block->second.use, sim.clock.now());
  sim.host.remove(block);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuMemHostGetDevicePointer);
  if (!pdptr || Flags != 0 || sim.host.find(p) == sim.host.blocks().end()) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  SPILLWAY_SIM_ENTER(cuMemHostGetFlags);
  const auto block = sim.host.find(p);
  if (!pFlags || block == sim.host.blocks().end()) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = block->second.flags;
  return CUDA_SUCCESS;
}
