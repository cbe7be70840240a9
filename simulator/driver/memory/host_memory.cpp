#include "simulator/driver/memory/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace spillway::simulator {
namespace {

constexpr uint64_t kPage = 4096;

// Reading memory that was never written takes no page of it, writing does.
void clear_what_is_not_zero(char* at, uint64_t bytes) {
  static constexpr char kZeros[kPage] = {};
  for (uint64_t done = 0; done < bytes; done += kPage) {
    const uint64_t piece = std::min(kPage, bytes - done);
    if (std::memcmp(at + done, kZeros, piece) != 0) std::memset(at + done, 0, piece);
  }
}

bool is_zero(const char* at, uint64_t bytes) {
  static constexpr char kZeros[kPage] = {};
  for (uint64_t done = 0; done < bytes; done += kPage)
    if (std::memcmp(at + done, kZeros, std::min(kPage, bytes - done)) != 0) return false;
  return true;
}

// Private anonymous pages that are dropped read as zeros again.
bool drop_pages(char* begin, char* end) {
  return madvise(begin, static_cast<size_t>(end - begin), MADV_DONTNEED) == 0;
}

}  // namespace

void* HostMemory::allocate(uint64_t bytes) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void HostMemory::free(void* address, uint64_t bytes) {
  munmap(address, bytes);
}

void HostMemory::add(uintptr_t address, const HostBlock& block) {
  blocks_[address] = block;
  if (!block.managed) pinned_ += block.bytes;
  pinned_peak_ = std::max(pinned_peak_, pinned_);
}

void HostMemory::remove(Blocks::iterator block) {
  if (!block->second.managed) pinned_ -= block->second.bytes;
  blocks_.erase(block);
}

HostMemory::Blocks::iterator HostMemory::find(const void* address) {
  const auto key = reinterpret_cast<uintptr_t>(address);
  auto after = blocks_.upper_bound(key);
  if (after == blocks_.begin()) return blocks_.end();
  const auto block = std::prev(after);
  return key - block->first < block->second.bytes ? block : blocks_.end();
}

void HostMemory::clear(void* address, uint64_t bytes) {
  char* const begin = static_cast<char*>(address);
  char* const end = begin + bytes;
  const bool own = is_pinned(address, bytes);
  char* const first_page = begin + (kPage - reinterpret_cast<uintptr_t>(begin) % kPage) % kPage;
  char* const last_page = end - reinterpret_cast<uintptr_t>(end) % kPage;
  if (!own || first_page >= last_page || !drop_pages(first_page, last_page))
    return clear_what_is_not_zero(begin, bytes);
  std::memset(begin, 0, static_cast<size_t>(first_page - begin));
  std::memset(last_page, 0, static_cast<size_t>(end - last_page));
}

bool HostMemory::is_pinned(const void* address, uint64_t bytes) {
  const auto owner = find(address);
  return owner != blocks_.end() && !owner->second.registered &&
         reinterpret_cast<uintptr_t>(address) + bytes <= owner->first + owner->second.bytes;
}

void HostMemory::note_copy(const void* address, uint64_t bytes, bool known) {
  if (unknown_.empty() && (known || bytes < kPage)) return;
  const auto begin = reinterpret_cast<uintptr_t>(address), end = begin + bytes;
  auto range = unknown_.lower_bound(begin);
  if (range != unknown_.begin() && std::prev(range)->second > begin) --range;
  while (range != unknown_.end() && range->first < end) range = unknown_.erase(range);
  if (!known && bytes >= kPage && is_pinned(address, bytes)) unknown_.emplace(begin, end);
}

bool HostMemory::holds_unknown(const void* address, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto range = unknown_.upper_bound(begin);
  if (range == unknown_.begin() || begin + bytes > std::prev(range)->second) return false;
  range = std::prev(range);
  if (is_pinned(address, bytes) && is_zero(static_cast<const char*>(address), bytes)) return true;
  unknown_.erase(range);  // the host has written there, or the block is another one
  return false;
}

bool HostMemory::overlaps(const void* address, uint64_t bytes) {
  const auto key = reinterpret_cast<uintptr_t>(address);
  const auto after = blocks_.lower_bound(key + bytes);
  if (after == blocks_.begin()) return false;
  const auto block = std::prev(after);
  return block->first + block->second.bytes > key;
}

}  // namespace spillway::simulator
