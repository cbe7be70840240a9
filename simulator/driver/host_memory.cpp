#include "simulator/driver/host_memory.h"

#include <sys/mman.h>

#include <iterator>

namespace spillway::simulator {

void* HostMemory::allocate(uint64_t bytes) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void HostMemory::free(void* address, uint64_t bytes) {
  munmap(address, bytes);
}

HostMemory::Blocks::iterator HostMemory::find(const void* address) {
  const auto key = reinterpret_cast<uintptr_t>(address);
  auto after = blocks_.upper_bound(key);
  if (after == blocks_.begin()) return blocks_.end();
  const auto block = std::prev(after);
  return key - block->first < block->second.bytes ? block : blocks_.end();
}

bool HostMemory::overlaps(const void* address, uint64_t bytes) {
  const auto key = reinterpret_cast<uintptr_t>(address);
  const auto after = blocks_.lower_bound(key + bytes);
  if (after == blocks_.begin()) return false;
  const auto block = std::prev(after);
  return block->first + block->second.bytes > key;
}

}  // namespace spillway::simulator
