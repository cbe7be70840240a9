#include "simulator/driver/memory/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "simulator/driver/machine/state.h"

namespace spillway::simulator {
namespace {

constexpr uint64_t kLeastWindow = uint64_t{4} << 30;

// Addresses at which nothing is accessible and that cost no memory. 0: the system has no such range.
uint64_t reserve_window(uint64_t bytes) {
  void* window =
      mmap(nullptr, bytes + kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (window == MAP_FAILED) return 0;
  return (reinterpret_cast<uint64_t>(window) + kGranularity - 1) / kGranularity * kGranularity;
}

// Without bytes of its own, in null mode, a page reads as zeros.
bool show(uint64_t address, const Mapping& mapping, int protection) {
  if (mapping.page->descriptor < 0)
    return mmap(reinterpret_cast<void*>(address), mapping.bytes, protection,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
  return mmap(reinterpret_cast<void*>(address), mapping.bytes, protection, MAP_SHARED | MAP_FIXED,
              mapping.page->descriptor, static_cast<off_t>(mapping.page->offset)) != MAP_FAILED;
}

// Replaces a mapping that is there: it needs no more of the system than it frees.
void hide(uint64_t address, uint64_t bytes) {
  [[maybe_unused]] const void* hidden = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

CUresult no_mapping(uint64_t bytes) {
  std::fprintf(stderr,
               "spillway simulator: the system refused a mapping of %llu bytes: too many mappings "
               "(vm.max_map_count) or too little memory\n",
               static_cast<unsigned long long>(bytes));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

bool AddressSpace::open(uint64_t bytes, bool with_alias) {
  for (; bytes >= kLeastWindow; bytes /= 2) {
    const uint64_t window = reserve_window(bytes);
    const uint64_t alias = with_alias && window ? reserve_window(bytes) : 0;
    if (window && (alias || !with_alias)) {
      base_ = window;
      bytes_ = bytes;
      alias_offset_ = with_alias ? static_cast<ptrdiff_t>(alias - window) : 0;
      free_ = {{base_, bytes_}};
      return true;
    }
    if (window) munmap(reinterpret_cast<void*>(window), bytes);
  }
  return false;
}

CUdeviceptr AddressSpace::take(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted) {
  const auto fits = [&](auto range, CUdeviceptr at) {
    return at >= range->first && at - range->first <= range->second &&
           range->second - (at - range->first) >= bytes;
  };
  auto found = free_.end();
  CUdeviceptr at = wanted;
  if (wanted && wanted % alignment == 0 && contains(wanted)) {
    auto after = free_.upper_bound(wanted);
    if (after != free_.begin() && fits(std::prev(after), wanted)) found = std::prev(after);
  }
  for (auto range = free_.begin(); found == free_.end() && range != free_.end(); ++range) {
    at = (range->first + alignment - 1) / alignment * alignment;
    if (fits(range, at)) found = range;
  }
  if (found == free_.end()) return 0;
  const auto [start, length] = *found;
  free_.erase(found);
  if (at > start) free_[start] = at - start;
  if (at + bytes < start + length) free_[at + bytes] = start + length - at - bytes;
  return at;
}

void AddressSpace::give(CUdeviceptr address, uint64_t bytes) {
  auto after = free_.upper_bound(address);
  if (after != free_.end() && address + bytes == after->first) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  free_[address] = bytes;
}

CUdeviceptr AddressSpace::reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted,
                                  const Reservation& reservation) {
  const CUdeviceptr address = take(bytes, alignment, wanted);
  if (address) reservations_[address] = reservation;
  return address;
}

void AddressSpace::unreserve(Reservations::iterator reservation) {
  give(reservation->first, reservation->second.bytes);
  reservations_.erase(reservation);
}

AddressSpace::Reservations::iterator AddressSpace::reservation_of(CUdeviceptr address) {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return reservations_.end();
  const auto found = std::prev(after);
  return address - found->first < found->second.bytes ? found : reservations_.end();
}

bool AddressSpace::within_reservation(CUdeviceptr address, uint64_t bytes) {
  const auto found = reservation_of(address);
  return found != reservations_.end() && !found->second.internal &&
         bytes <= found->second.bytes - (address - found->first);
}

AddressSpace::Mappings::iterator AddressSpace::mapping_of(CUdeviceptr address) {
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return mappings_.end();
  const auto found = std::prev(after);
  return address - found->first < found->second.bytes ? found : mappings_.end();
}

bool AddressSpace::whole_mappings(CUdeviceptr address, uint64_t bytes) {
  const CUdeviceptr end = address + bytes;
  if (end <= address) return false;
  auto mapping = mappings_.find(address);
  while (address < end) {
    if (mapping == mappings_.end() || mapping->first != address || mapping->second.allocation ||
        mapping->second.bytes > end - address)
      return false;
    address += mapping->second.bytes;
    ++mapping;
  }
  return true;
}

bool AddressSpace::overlaps(CUdeviceptr address, uint64_t bytes) {
  const auto after = mappings_.lower_bound(address + bytes);
  if (after == mappings_.begin()) return false;
  const auto last = std::prev(after);
  return last->first + last->second.bytes > address;
}

Mapping& AddressSpace::add(CUdeviceptr address, const Mapping& mapping) {
  ++mapping.page->mappings;
  return mappings_[address] = mapping;
}

void AddressSpace::count_remote(Mapping& mapping, bool remote) {
  if (remote != mapping.remote) remote ? ++remote_ : --remote_;
  mapping.remote = remote;
}

AddressSpace::Mappings::iterator AddressSpace::remove(Mappings::iterator mapping) {
  count_remote(mapping->second, false);
  if (mapping->second.aliased) hide(mapping->first + alias_offset_, mapping->second.bytes);
  if (mapping->second.shown != CU_MEM_ACCESS_FLAGS_PROT_NONE) hide(mapping->first, mapping->second.bytes);
  --mapping->second.page->mappings;
  return mappings_.erase(mapping);
}

CUresult AddressSpace::apply_access(Mappings::iterator mapping) {
  Mapping& entry = mapping->second;
  const Device* owner = entry.page->device;
  const uint32_t own = owner ? uint32_t{1} << owner->ordinal : 0;
  count_remote(entry, (entry.readable & ~own) != 0);
  if (const CUresult result = apply_host_access(mapping->first, entry); result != CUDA_SUCCESS) return result;
  if (!alias_offset_ || entry.page->descriptor < 0) return CUDA_SUCCESS;
  const bool wanted = entry.readable != 0;
  if (wanted && !entry.aliased && !show(mapping->first + alias_offset_, entry, PROT_READ | PROT_WRITE))
    return no_mapping(entry.bytes);
  if (!wanted && entry.aliased) hide(mapping->first + alias_offset_, entry.bytes);
  entry.aliased = wanted;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::apply_host_access(CUdeviceptr address, Mapping& entry) {
  if (entry.host == entry.shown) return CUDA_SUCCESS;
  if (entry.host == CU_MEM_ACCESS_FLAGS_PROT_NONE)
    hide(address, entry.bytes);
  else if (!show(address, entry,
                 entry.host == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_READ | PROT_WRITE))
    return no_mapping(entry.bytes);
  entry.shown = entry.host;
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator
