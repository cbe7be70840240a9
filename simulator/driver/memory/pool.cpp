// Stream-ordered allocation: the same memory as cuMemAlloc's, counted by pool, and kept by it when it is
// freed. A free takes effect at once, which is right for the stream that freed; another stream's work in
// flight there is a violation.
#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

Pool* find_pool(CUmemoryPool handle) {
  auto* pool = reinterpret_cast<Pool*>(handle);
  Machine& sim = machine();
  for (const auto& device : sim.devices)
    if (&device->default_pool == pool) return pool;
  return sim.pools.contains(pool) ? pool : nullptr;
}

CUmemoryPool handle_of(Pool* pool) {
  return reinterpret_cast<CUmemoryPool>(pool);
}

// In a capture, memory is a node of the graph: it has its address now and comes with the launch.
CUresult allocate_in_capture(Stream& stream, Device& device, uint64_t bytes, Site site, CUdeviceptr* out) {
  if (bytes > device.account.capacity_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range = std::make_shared<GraphRange>(&device, bytes, site);
  if (!range->address) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = range->address;
  return capture_work(stream, AllocateWork{std::move(range)}, site);
}

CUresult allocate_on(CUstream handle, Pool* pool, uint64_t bytes, Site site, CUdeviceptr* out) {
  Stream* stream = nullptr;
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_work_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (!pool) pool = stream->context->device->pool;
  return stream->capture ? allocate_in_capture(*stream, *pool->device, bytes, site, out)
                         : allocate_from(*pool, bytes, site, out);
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemAllocAsync);
  return allocate_on(hStream, nullptr, bytesize, call.site(), dptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemAllocFromPoolAsync);
  Pool* found = find_pool(pool);
  return found ? allocate_on(hStream, found, bytesize, call.site(), dptr) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemFreeAsync);
  if (dptr == 0) return CUDA_SUCCESS;
  Stream* stream = nullptr;
  if (const CUresult result = find_work_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  if (stream->capture && !is_graph_memory(dptr)) return CUDA_ERROR_INVALID_VALUE;
  if (!stream->capture) settle_to_unmap();
  return enqueue(*stream, FreeWork{dptr}, call.site());
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceGetDefaultMemPool);
  if (!pool_out) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pool_out = handle_of(&sim.device(dev)->default_pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDeviceGetMemPool);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = handle_of(sim.device(dev)->pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  SPILLWAY_SIM_ENTER(cuDeviceSetMemPool);
  Pool* found = find_pool(pool);
  if (!sim.device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (!found || found->device != sim.device(dev)) return CUDA_ERROR_INVALID_VALUE;
  sim.device(dev)->pool = found;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  SPILLWAY_SIM_ENTER(cuMemPoolCreate);
  if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE || poolProps->handleTypes)
    return CUDA_ERROR_NOT_SUPPORTED;
  Device* device = sim.device(poolProps->location.id);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  auto* made = new Pool;
  made->device = device;
  sim.pools.insert(made);
  *pool = handle_of(made);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  SPILLWAY_SIM_ENTER(cuMemPoolDestroy);
  auto* found = reinterpret_cast<Pool*>(pool);
  if (!sim.pools.contains(found)) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *found->device;
  if (device.pool == found) device.pool = &device.default_pool;
  for (auto& [address, mapping] : sim.space.mappings())
    if (mapping.pool == found) mapping.pool = nullptr;
  device.account.give_pages(kept_bytes(*found), Taker::kOther);
  sim.pools.erase(found);
  delete found;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  SPILLWAY_SIM_ENTER(cuMemPoolTrimTo);
  Pool* found = find_pool(pool);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  trim(*found, minBytesToKeep);
  return CUDA_SUCCESS;
}

// A device that was given access to one pool reaches all of that device's plain memory: pools are not told
// apart.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  SPILLWAY_SIM_ENTER(cuMemPoolSetAccess);
  const Pool* found = find_pool(pool);
  if (!found || !map || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Device* device = sim.device(map[i].location.id);
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device) return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    device->peers |= uint32_t{1} << found->device->ordinal;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) {
  SPILLWAY_SIM_ENTER(cuMemPoolGetAccess);
  const Pool* found = find_pool(memPool);
  if (!flags || !found || !location) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = sim.device(location->id);
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device) return CUDA_ERROR_INVALID_DEVICE;
  const bool reaches = device == found->device || (device->peers >> found->device->ordinal & 1);
  *flags = reaches ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  SPILLWAY_SIM_ENTER(cuMemPoolSetAttribute);
  Pool* found = find_pool(pool);
  if (!found || !value) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      found->release_threshold_bytes = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      found->used_high_bytes = found->used_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      found->reserved_high_bytes = found->reserved_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  SPILLWAY_SIM_ENTER(cuMemPoolGetAttribute);
  Pool* found = find_pool(pool);
  if (!found || !value) return CUDA_ERROR_INVALID_VALUE;
  auto* bytes = static_cast<cuuint64_t*>(value);
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *bytes = found->release_threshold_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *bytes = found->reserved_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *bytes = found->reserved_high_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *bytes = found->used_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *bytes = found->used_high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SPILLWAY_SIM_FORWARD(cuMemAllocAsync_ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
                     cuMemAllocAsync, (dptr, bytesize, per_thread(hStream)))
SPILLWAY_SIM_FORWARD(cuMemAllocFromPoolAsync_ptsz,
                     (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
                     cuMemAllocFromPoolAsync, (dptr, bytesize, pool, per_thread(hStream)))
SPILLWAY_SIM_FORWARD(cuMemFreeAsync_ptsz, (CUdeviceptr dptr, CUstream hStream), cuMemFreeAsync,
                     (dptr, per_thread(hStream)))
