#include "simulator/driver/memory/managed.h"

#include <algorithm>
#include <cmath>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/memory/host_memory.h"
#include "simulator/driver/work/work.h"

namespace spillway::simulator {
namespace {

constexpr char kLabel[] = "managed";

HostMemory::Blocks::iterator find_managed(CUdeviceptr address, uint64_t bytes) {
  HostMemory& host = machine().host;
  const auto block = host.find(reinterpret_cast<void*>(address));
  const bool whole = block != host.blocks().end() && block->second.managed && bytes != 0 &&
                     bytes <= block->second.bytes - (address - block->first);
  return whole ? block : host.blocks().end();
}

// Null in `*device` is the host.
CUresult find_location(const CUmemLocation& location, Device** device) {
  *device = nullptr;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
    return CUDA_SUCCESS;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *device = machine().device(location.id);
  return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

void ManagedMemory::leave(uintptr_t piece) {
  const auto found = resident_.find(piece);
  if (found == resident_.end()) return;
  found->second.device->account.discharge(kLabel, kGranularity);
  by_order_.erase(found->second.order);
  resident_.erase(found);
}

void ManagedMemory::move(uintptr_t block, uintptr_t address, uint64_t bytes, Device* device) {
  const uintptr_t first = block + (address - block) / kGranularity * kGranularity;
  for (uintptr_t piece = first; piece < address + bytes; piece += kGranularity) {
    leave(piece);
    if (!device) continue;
    evict(*device, kGranularity);
    if (device->account.free_bytes() < kGranularity) continue;
    device->account.charge(kLabel, kGranularity);
    resident_[piece] = {device, next_order_};
    by_order_[next_order_++] = piece;
  }
}

void ManagedMemory::evict(Device& device, uint64_t bytes) {
  for (auto next = by_order_.begin(); next != by_order_.end() && device.account.free_bytes() < bytes;) {
    const uintptr_t piece = next->second;
    ++next;
    if (resident_.at(piece).device == &device) leave(piece);
  }
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuMemAllocManaged);
  if (!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  void* address = nullptr;
  const CUresult result = allocate_host(&address, bytesize, {.managed = true, .site = call.site()});
  if (result == CUDA_SUCCESS) *dptr = reinterpret_cast<CUdeviceptr>(address);
  return result;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemPrefetchAsync_v2);
  Device* device = nullptr;
  Stream* stream = nullptr;
  if (const CUresult result = find_location(location, &device); result != CUDA_SUCCESS) return result;
  if (const CUresult result = find_work_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_synchronization(*stream); result != CUDA_SUCCESS) return result;
  const auto block = find_managed(devPtr, count);
  if (flags != 0 || block == sim.host.blocks().end()) return CUDA_ERROR_INVALID_VALUE;
  Device& engines = *stream->context->device;
  const double speed = device ? sim.config.bandwidth.h2d : sim.config.bandwidth.d2h;
  const Interval time = place(*stream, device ? &engines.h2d : &engines.d2h,
                              static_cast<uint64_t>(std::ceil(static_cast<double>(count) / speed)));
  if (time.end >= block->second.use.end) block->second.use = {time.end, stream->id, "prefetch", call.site()};
  sim.managed.move(block->first, devPtr, count, device);
  return CUDA_SUCCESS;
}

// Advice changes no value and no count of memory here.
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
  SPILLWAY_SIM_ENTER(cuMemAdvise_v2);
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY ||
      find_managed(devPtr, count) == sim.host.blocks().end())
    return CUDA_ERROR_INVALID_VALUE;
  const bool of_all = advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY;
  Device* device = nullptr;
  return of_all ? CUDA_SUCCESS : find_location(location, &device);
}

SPILLWAY_SIM_FORWARD(cuMemPrefetchAsync_v2_ptsz,
                     (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
                      CUstream stream),
                     cuMemPrefetchAsync_v2, (address, bytes, location, flags, per_thread(stream)))
