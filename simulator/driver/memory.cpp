#include "simulator/driver/memory.h"

#include "simulator/driver/call.h"
#include "simulator/driver/report.h"

namespace spillway::simulator {
namespace {

constexpr uint64_t kHostPage = 4096;

uint64_t rounded(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

CUresult allocate_device(Device& device, uint64_t bytes, Pool* pool, Site site, CUdeviceptr* out) {
  Machine& sim = machine();
  if (bytes > device.account.capacity_bytes()) {  // and perhaps too many to be rounded up
    device.account.refuse_pages(bytes);
    return refused_for_lack_of_room();
  }
  const uint64_t charged = rounded(bytes, kGranularity);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.ordinal};
  Page* page = nullptr;
  if (const CUresult result = sim.physical->create(properties, &device, charged, site, &page);
      result != CUDA_SUCCESS)
    return result;
  page->references = 0;
  // The range has a gap behind it: running over the end meets nothing.
  const uint64_t range = charged + kGranularity;
  const CUdeviceptr address =
      sim.space.reserve(range, kGranularity, 0, {.bytes = range, .internal = true, .site = site});
  if (!address) {
    sim.physical->drop_if_unused(page);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const uint32_t own = uint32_t{1} << device.ordinal;
  sim.space.add(address, {.bytes = rounded(bytes, kHostPage),
                          .page = page,
                          .readable = own,
                          .writable = own,
                          .allocation = true,
                          .pool = pool,
                          .requested_bytes = bytes,
                          .site = site});
  const auto added = sim.space.mappings().find(address);
  const CUresult result = sim.space.apply_access(added);
  if (result != CUDA_SUCCESS) {
    free_device(added, site);
    return result;
  }
  *out = address;
  return CUDA_SUCCESS;
}

AddressSpace::Mappings::iterator find_allocation(CUdeviceptr address, Site site) {
  Machine& sim = machine();
  const auto found = sim.space.mappings().find(address);
  if (found != sim.space.mappings().end() && found->second.allocation) return found;
  sim.referee.violation("address " + describe_range(address, 1) + ", which is no allocation, freed at " +
                        describe_site(site) + sim.referee.who_took(address, 1));
  return sim.space.mappings().end();
}

void free_device(AddressSpace::Mappings::iterator allocation, Site site) {
  Machine& sim = machine();
  const CUdeviceptr address = allocation->first;
  Page* page = allocation->second.page;
  sim.referee.went(Referee::Went::kFreed, address, allocation->second.bytes, site);
  sim.space.remove(allocation);
  sim.physical->drop_if_unused(page);
  sim.space.unreserve(sim.space.reservations().find(address));
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemAlloc(CUdeviceptr* dptr, size_t bytesize) {
  SPILLWAY_SIM_ENTER(cuMemAlloc);
  if (!dptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  return allocate_device(*current_context()->device, bytesize, nullptr, call.site(), dptr);
}

CUresult cuMemAllocPitch(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                         unsigned int ElementSizeBytes) {
  SPILLWAY_SIM_ENTER(cuMemAllocPitch);
  constexpr size_t kPitch = 512;
  const bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0 || !element) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  size_t bytes = 0;
  if (WidthInBytes > SIZE_MAX - kPitch) return CUDA_ERROR_INVALID_VALUE;
  const size_t pitch = rounded(WidthInBytes, kPitch);
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate_device(*current_context()->device, bytes, nullptr, call.site(), dptr);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

CUresult cuMemFree(CUdeviceptr dptr) {
  SPILLWAY_SIM_ENTER(cuMemFree);
  if (dptr == 0) return CUDA_SUCCESS;
  auto allocation = find_allocation(dptr, call.site());
  if (allocation == sim.space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  // The driver waits for the device, and so for all work that may touch the memory. Work from outside that
  // failed is no reason to keep it.
  const Externals outside = allocation->second.page->device->outside;
  if (!outside.empty()) {
    settle(outside);
    allocation = find_allocation(dptr, call.site());
    if (allocation == sim.space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  }
  sim.clock.wait_until(std::max(allocation->second.use.end, allocation->second.page->device->last_end));
  if (allocation->second.pool) allocation->second.pool->used_bytes -= allocation->second.requested_bytes;
  free_device(allocation, call.site());
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  SPILLWAY_SIM_ENTER(cuMemGetInfo);
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  const Device& device = *current_context()->device;
  if (free) *free = device.account.free_bytes();
  if (total) *total = device.account.capacity_bytes();
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  SPILLWAY_SIM_ENTER(cuMemGetAddressRange);
  const auto mapping = sim.space.mapping_of(dptr);
  if (mapping == sim.space.mappings().end()) return CUDA_ERROR_NOT_FOUND;
  if (pbase) *pbase = mapping->first;
  if (psize) *psize = mapping->second.allocation ? mapping->second.requested_bytes : mapping->second.bytes;
  return CUDA_SUCCESS;
}
