// Virtual memory management: address ranges, pages, mappings and their access.
#include <algorithm>
#include <bit>
#include <optional>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

bool granular(uint64_t value) {
  return value % kGranularity == 0;
}

bool valid_handle_types(CUmemAllocationHandleType types) {
  return (types & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) == 0;
}

bool has_host_node(int node) {
  const std::vector<int>& nodes = machine().config.driver.host_nodes;
  return std::ranges::find(nodes, node) != nodes.end();
}

// Checks what a page is asked to be, and finds where: null for host memory.
CUresult place_of(const CUmemAllocationProp* prop, Device** out) {
  *out = nullptr;
  if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || !valid_handle_types(prop->requestedHandleTypes))
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *out = machine().device(prop->location.id);
      return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return has_host_node(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
      return prop->requestedHandleTypes || !machine().config.driver.host_location ? CUDA_ERROR_INVALID_VALUE
                                                                                  : CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Whether every device that the access is of can reach the page's device.
bool reaches(const Page& page, uint32_t devices) {
  const uint32_t others = page.device ? devices & ~(uint32_t{1} << page.device->ordinal) : 0;
  return others == 0 || machine().config.peer_access;
}

struct Access {
  uint32_t readable = 0, writable = 0, named = 0;  // a bit per device
  std::optional<CUmemAccess_flags> host;           // where the CPU is named
  CUmemLocationType host_type = CU_MEM_LOCATION_TYPE_INVALID;
};

bool is_right(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult read_host_access(const CUmemAccessDesc& desc, Access& out) {
  if (!machine().config.driver.host_access) return CUDA_ERROR_NOT_SUPPORTED;
  out.host = desc.flags;
  out.host_type = desc.location.type;
  return CUDA_SUCCESS;
}

CUresult read_device_access(const CUmemAccessDesc& desc, Access& out) {
  if (!machine().device(desc.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const uint32_t device = uint32_t{1} << desc.location.id;
  out.named |= device;
  if (desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) out.writable |= device;
  if (desc.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) out.readable |= device;
  return CUDA_SUCCESS;
}

CUresult read_access(const CUmemAccessDesc* desc, size_t count, Access& out) {
  for (size_t i = 0; i < count; ++i) {
    if (!is_right(desc[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    switch (desc[i].location.type) {
      case CU_MEM_LOCATION_TYPE_DEVICE:
        result = read_device_access(desc[i], out);
        break;
      case CU_MEM_LOCATION_TYPE_HOST:
      case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        result = read_host_access(desc[i], out);
        break;
      default:
        break;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Where mappings change only when the devices that use them have come to rest. What may not be in flight has
// been checked before.
void wait_for_rest(uint32_t devices) {
  Machine& sim = machine();
  if (!sim.config.driver.mapping_waits || is_beside()) return;
  for (const auto& device : sim.devices)
    if (devices & (uint32_t{1} << device->ordinal)) sim.clock.wait_until(device->last_end);
}

// Whether all that is named can be given access to the page. The CPU has none to a device's memory, and to
// the host's by the type of the place that the page was made at (cuMemSetAccess).
CUresult check_access(const Page& page, const Access& access) {
  if (!reaches(page, access.readable)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const bool fits =
      !access.host || (page.device == nullptr && page.properties.location.type == access.host_type);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  SPILLWAY_SIM_ENTER(cuMemGetAllocationGranularity);
  if (!granularity ||
      (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (const CUresult result = place_of(prop, &device); result != CUDA_SUCCESS) return result;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  SPILLWAY_SIM_ENTER(cuMemAddressReserve);
  if (!ptr || size == 0 || !granular(size) || flags != 0 || (alignment && !std::has_single_bit(alignment)))
    return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr address = sim.space.reserve(size, std::max<uint64_t>(alignment, kGranularity), addr,
                                                {.bytes = size, .site = call.site()});
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  *ptr = address;
  call.charge_extent(size);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  SPILLWAY_SIM_ENTER(cuMemAddressFree);
  const auto found = sim.space.reservations().find(ptr);
  if (found == sim.space.reservations().end() || found->second.internal) {
    const std::string taker = sim.referee.who_took(ptr, 1);
    if (!taker.empty())
      sim.referee.violation("the range at " + describe_range(ptr, size) + " freed again at " +
                            describe_site(call.site()) + taker);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (found->second.bytes != size || sim.space.overlaps(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  sim.referee.went(Referee::Went::kFreed, ptr, size, call.site());
  sim.space.unreserve(found);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  SPILLWAY_SIM_ENTER(cuMemCreate);
  if (!handle || size == 0 || !granular(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (const CUresult result = place_of(prop, &device); result != CUDA_SUCCESS) return result;
  Page* page = nullptr;
  const CUresult result = sim.physical->create(*prop, device, size, call.site(), &page);
  if (result != CUDA_SUCCESS) return result;
  *handle = page->handle;
  device ? call.charge_extent(size) : call.charge_pinning(size);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SPILLWAY_SIM_ENTER(cuMemRelease);
  Page* page = sim.physical->find(handle);
  if (!page) {
    sim.referee.violation("handle " + std::to_string(handle) +
                          ", which the program does not hold, released at " + describe_site(call.site()) +
                          sim.referee.who_released(handle));
    return CUDA_ERROR_INVALID_VALUE;
  }
  call.charge_extent(page->bytes);
  if (--page->references == 0) sim.referee.went(Referee::Went::kReleased, handle, 0, call.site());
  sim.physical->drop_if_unused(page);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  SPILLWAY_SIM_ENTER(cuMemMap);
  Page* page = sim.physical->find(handle);
  if (!page || size == 0 || !granular(ptr) || !granular(size) || offset != 0 || flags != 0 ||
      size > page->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!sim.space.within_reservation(ptr, size) || sim.space.overlaps(ptr, size))
    return CUDA_ERROR_INVALID_VALUE;
  sim.space.add(ptr, {.bytes = size, .page = page, .site = call.site()});
  call.charge_extent(size, 1);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  SPILLWAY_SIM_ENTER(cuMemUnmap);
  settle_to_unmap();
  if (!sim.space.whole_mappings(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  auto mapping = sim.space.mappings().find(ptr);
  uint64_t count = 0;
  uint32_t users = 0;
  for (; mapping != sim.space.mappings().end() && mapping->first < ptr + size; ++count) {
    check_idle(mapping->second, mapping->first, "unmapped", call.site());
    users |= mapping->second.readable;
    Page* page = mapping->second.page;
    forget(mapping->first, mapping->second.bytes);
    mapping = sim.space.remove(mapping);
    sim.physical->drop_if_unused(page);
  }
  sim.referee.went(Referee::Went::kUnmapped, ptr, size, call.site());
  call.charge_extent(size, count);
  wait_for_rest(users);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  SPILLWAY_SIM_ENTER(cuMemSetAccess);
  if (!desc || count == 0 || !sim.space.whole_mappings(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  Access access;
  if (const CUresult result = read_access(desc, count, access); result != CUDA_SUCCESS) return result;
  const auto first = sim.space.mappings().find(ptr);
  for (auto it = first; it != sim.space.mappings().end() && it->first < ptr + size; ++it)
    if (const CUresult result = check_access(*it->second.page, access); result != CUDA_SUCCESS) return result;
  auto mapping = first;
  uint64_t mappings = 0;
  for (; mapping != sim.space.mappings().end() && mapping->first < ptr + size; ++mapping, ++mappings) {
    Mapping& entry = mapping->second;
    const uint32_t writable = (entry.writable & ~access.named) | access.writable;
    const uint32_t readable = (entry.readable & ~access.named) | access.readable;
    if ((entry.writable & ~writable) || (entry.readable & ~readable))
      check_idle(entry, mapping->first, "lost an access right", call.site());
    entry.writable = writable;
    entry.readable = readable;
    entry.host = access.host.value_or(entry.host);
    if (const CUresult result = sim.space.apply_access(mapping); result != CUDA_SUCCESS) return result;
  }
  call.charge_extent(size, mappings);
  wait_for_rest(access.named);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  SPILLWAY_SIM_ENTER(cuMemGetAccess);
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = sim.space.mapping_of(ptr);
  if (mapping == sim.space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  if (is_host(*location)) {
    *flags = mapping->second.host;
    return CUDA_SUCCESS;
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim.device(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  const uint32_t device = uint32_t{1} << location->id;
  *flags = mapping->second.writable & device   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : mapping->second.readable & device ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  SPILLWAY_SIM_ENTER(cuMemRetainAllocationHandle);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = sim.space.mapping_of(reinterpret_cast<CUdeviceptr>(addr));
  if (mapping == sim.space.mappings().end() || mapping->second.allocation) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->second.page->references;
  *handle = mapping->second.page->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  SPILLWAY_SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
  const Page* page = sim.physical->find(handle);
  if (!prop || !page) return CUDA_ERROR_INVALID_VALUE;
  *prop = page->properties;
  return CUDA_SUCCESS;
}
