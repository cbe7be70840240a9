#include "simulator/driver/memory/memory.h"

#include <algorithm>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/host_memory.h"
#include "simulator/driver/process/report.h"

namespace spillway::simulator {
namespace {

uint64_t rounded(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Leaves `*out` as it is where there is no room.
CUresult make_page(Device& device, uint64_t bytes, Site site, Page** out, uint64_t* prepaid = nullptr) {
  if (bytes > device.account.capacity_bytes()) {  // and perhaps too many to be rounded up
    device.account.refuse_pages(bytes);
    return refused_for_lack_of_room();
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.ordinal};
  const CUresult result =
      machine().physical->create(properties, &device, rounded(bytes, kGranularity), site, out, prepaid);
  if (result == CUDA_SUCCESS) (*out)->references = 0;
  return result;
}

// Maps a page of its own, readable and writable for its device, or frees it.
CUresult map_allocation(CUdeviceptr address, Mapping mapping) {
  Machine& sim = machine();
  mapping.bytes = rounded(mapping.requested_bytes, kHostPage);
  mapping.readable = mapping.writable = uint32_t{1} << mapping.page->device->ordinal;
  mapping.allocation = true;
  sim.space.add(address, mapping);
  const auto added = sim.space.mappings().find(address);
  const CUresult result = sim.space.apply_access(added);
  if (result != CUDA_SUCCESS) free_device(added, mapping.site);
  return result;
}

// Kernels that are not declared may use it too: the driver waits for all devices.
CUresult free_managed(CUdeviceptr address) {
  Machine& sim = machine();
  settle(pending_anywhere());
  const auto block = sim.host.blocks().find(address);
  if (block == sim.host.blocks().end()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& device : sim.devices) sim.clock.wait_until(device->last_end);
  sim.managed.move(block->first, block->first, block->second.bytes, nullptr);
  sim.host.free(reinterpret_cast<void*>(address), block->second.bytes);
  sim.host.remove(block);
  return CUDA_SUCCESS;
}

bool is_managed(CUdeviceptr address) {
  const auto block = machine().host.blocks().find(address);
  return block != machine().host.blocks().end() && block->second.managed;
}

}  // namespace

CUresult allocate_device(Device& device, uint64_t bytes, Pool* pool, Site site, CUdeviceptr* out,
                         uint64_t* prepaid) {
  Machine& sim = machine();
  Page* page = nullptr;
  const CUresult made = make_page(device, bytes, site, &page, prepaid);
  if (!page) return made;
  // The range has a gap behind it: running over the end meets nothing.
  const uint64_t range = page->bytes + kGranularity;
  const CUdeviceptr address =
      sim.space.reserve(range, kGranularity, 0, {.bytes = range, .internal = true, .site = site});
  if (!address) {
    sim.physical->drop_if_unused(page);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = address;
  return map_allocation(address, {.page = page, .pool = pool, .requested_bytes = bytes, .site = site});
}

CUresult map_imported(Page* page, uint64_t bytes, Site site, CUdeviceptr* out) {
  const uint64_t range = page->bytes + kGranularity;
  const CUdeviceptr address =
      machine().space.reserve(range, kGranularity, 0, {.bytes = range, .internal = true, .site = site});
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = address;
  return map_allocation(address, {.page = page, .imported = true, .requested_bytes = bytes, .site = site});
}

bool is_legacy_shareable(const Mapping& mapping) {
  return machine().config.driver.legacy_ipc && mapping.allocation && !mapping.imported && !mapping.pool &&
         !mapping.range;
}

CUresult allocate_range(const std::shared_ptr<GraphRange>& range, Site site, uint64_t* prepaid) {
  Machine& sim = machine();
  Device& device = *range->device;
  Page* page = nullptr;
  if (sim.space.overlaps(range->address, range->bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult made = make_page(device, range->bytes, site, &page, prepaid);
  if (!page) return made;
  return map_allocation(range->address, {.page = page,
                                         .pool = &device.graph_pool,
                                         .range = range,
                                         .requested_bytes = range->bytes,
                                         .site = site});
}

AddressSpace::Mappings::iterator find_allocation(CUdeviceptr address, Site site) {
  Machine& sim = machine();
  const auto found = sim.space.mappings().find(address);
  if (found != sim.space.mappings().end() && found->second.allocation && !found->second.imported)
    return found;
  sim.referee.violation("address " + describe_range(address, 1) + ", which is no allocation, freed at " +
                        describe_site(site) + sim.referee.who_took(address, 1));
  return sim.space.mappings().end();
}

void free_device(AddressSpace::Mappings::iterator allocation, Site site) {
  Machine& sim = machine();
  const CUdeviceptr address = allocation->first;
  Page* page = allocation->second.page;
  const std::shared_ptr<GraphRange> range = allocation->second.range;
  sim.referee.went(Referee::Went::kFreed, address, allocation->second.bytes, site);
  forget(address, allocation->second.bytes);
  sim.space.remove(allocation);
  sim.physical->drop_if_unused(page);
  if (!range) sim.space.unreserve(sim.space.reservations().find(address));
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemAlloc(CUdeviceptr* dptr, size_t bytesize) {
  SPILLWAY_SIM_ENTER(cuMemAlloc);
  if (!dptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = allocate_device(*current_context()->device, bytesize, nullptr, call.site(), dptr);
  if (result == CUDA_SUCCESS) call.charge_extent(bytesize);
  return result;
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
  if (is_managed(dptr)) return free_managed(dptr);
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
  if (allocation->second.pool)
    free_to_pool(allocation, sim.clock.known(), call.site());
  else
    free_device(allocation, call.site());
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  SPILLWAY_SIM_ENTER(cuMemGetInfo);
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  Device& device = *current_context()->device;
  if (free) *free = device.account.free_bytes_now();
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
