#include "simulator/driver/work/touch.h"

#include <algorithm>
#include <string>

namespace spillway::simulator {
namespace {

// Calls `visit` for each mapping under the range. Returns the first address that has none, or 0.
template <typename Visit>
CUdeviceptr walk(CUdeviceptr address, uint64_t bytes, Visit visit) {
  AddressSpace& space = machine().space;
  const CUdeviceptr end = address + bytes;
  auto mapping = space.mapping_of(address);
  while (address < end) {
    if (mapping == space.mappings().end() || mapping->first > address) return address;
    visit(mapping->second);
    address = mapping->first + mapping->second.bytes;
    ++mapping;
  }
  return 0;
}

bool permits(const Mapping& mapping, const Device& device, bool writes, bool by_owner) {
  uint32_t devices = uint32_t{1} << device.ordinal;
  const Device* owner = mapping.page->device;
  const uint32_t owner_bit = owner ? uint32_t{1} << owner->ordinal : 0;
  if (mapping.allocation && (device.peers & owner_bit)) return true;
  if (by_owner) devices |= owner_bit;
  return ((writes ? mapping.writable : mapping.readable) & devices) != 0;
}

CUresult refuse(const char* name, Site site, const Touched& range, const std::string& why) {
  machine().referee.violation(std::string("'") + name + "' submitted at " + describe_site(site) +
                              (range.writes ? " writes " : " reads ") +
                              describe_range(range.address, range.bytes) + ", " + why);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace

bool is_device_address(CUdeviceptr address) {
  return machine().space.contains(address);
}

CUresult check(const Device& device, const Touched& range, bool by_owner, const char* name, Site site) {
  if (range.bytes == 0) return CUDA_SUCCESS;
  if (!is_device_address(range.address)) {
    const auto block = machine().host.find(reinterpret_cast<void*>(range.address));
    if (block != machine().host.blocks().end() &&
        range.bytes <= block->second.bytes - (range.address - block->first))
      return CUDA_SUCCESS;
    return refuse(name, site, range, "which is neither device memory nor registered host memory");
  }
  if (range.address + range.bytes < range.address) return refuse(name, site, range, "which wraps around");
  bool allowed = true;
  const CUdeviceptr hole = walk(range.address, range.bytes, [&](const Mapping& mapping) {
    allowed = allowed && permits(mapping, device, range.writes, by_owner);
  });
  if (hole)
    return refuse(
        name, site, range,
        "of which " + describe_range(hole, 1) + " is not mapped" + machine().referee.who_took(hole, 1));
  if (!allowed)
    return refuse(name, site, range, "for which device " + std::to_string(device.ordinal) + " has no access");
  return CUDA_SUCCESS;
}

void stamp(const Touched& range, const Use& use) {
  const auto note = [&](Use& old) {
    if (use.end >= old.end) old = use;
  };
  if (is_device_address(range.address)) {
    walk(range.address, range.bytes, [&](Mapping& mapping) { note(mapping.use); });
    return;
  }
  const auto block = machine().host.find(reinterpret_cast<void*>(range.address));
  if (block != machine().host.blocks().end()) note(block->second.use);
}

void check_idle(const Mapping& mapping, CUdeviceptr address, const char* what, Site site) {
  Machine& sim = machine();
  if (mapping.use.end > sim.clock.known())
    sim.referee.in_flight(describe_range(address, mapping.bytes) + " " + what, site, mapping.use,
                          sim.clock.now());
}

}  // namespace spillway::simulator
