#include "simulator/driver/known_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "simulator/driver/state.h"

namespace spillway::simulator {
namespace {

// Null: there is nothing to know.
KnownBytes* owner_of(CUdeviceptr address) {
  Machine& sim = machine();
  if (sim.config.compute || !sim.space.contains(address)) return nullptr;
  const auto mapping = sim.space.mapping_of(address);
  if (mapping == sim.space.mappings().end() || !mapping->second.page->device) return nullptr;
  return &mapping->second.page->device->known;
}

}  // namespace

void KnownBytes::put(CUdeviceptr address, const void* bytes, uint64_t size, Origin origin) {
  erase(address, size);
  if (size == 0 || size > kLargest) return;
  if (total_ + size > kMost) clear();
  const auto* begin = static_cast<const char*>(bytes);
  ranges_.emplace(address, Range{{begin, begin + size}, origin});
  total_ += size;
}

bool KnownBytes::get(CUdeviceptr address, void* out, uint64_t size, Origin least) const {
  auto range = ranges_.upper_bound(address);
  if (range != ranges_.begin()) --range;
  const CUdeviceptr end = address + size;
  CUdeviceptr next = address;
  for (; range != ranges_.end() && range->first <= next && next < end; ++range) {
    const CUdeviceptr range_end = range->first + range->second.bytes.size();
    if (range_end <= next) continue;
    if (range->second.origin < least) return false;
    const uint64_t count = std::min(range_end, end) - next;
    std::memcpy(static_cast<char*>(out) + (next - address),
                range->second.bytes.data() + (next - range->first), count);
    next += count;
  }
  return next == end;
}

void KnownBytes::erase(CUdeviceptr address, uint64_t size) {
  if (ranges_.empty() || size == 0) return;
  const CUdeviceptr end = address + size;
  auto range = ranges_.upper_bound(address);
  if (range != ranges_.begin()) --range;
  while (range != ranges_.end() && range->first < end) {
    const CUdeviceptr start = range->first, range_end = start + range->second.bytes.size();
    if (range_end <= address) {
      ++range;
      continue;
    }
    const auto [bytes, origin] = std::move(range->second);
    range = ranges_.erase(range);
    total_ -= bytes.size();
    const auto keep = [&, &bytes = bytes, origin = origin](CUdeviceptr from, CUdeviceptr to) {
      if (from >= to) return;
      ranges_.emplace(from, Range{{bytes.begin() + static_cast<ptrdiff_t>(from - start),
                                   bytes.begin() + static_cast<ptrdiff_t>(to - start)},
                                  origin});
      total_ += to - from;
    };
    keep(start, std::min(address, range_end));
    keep(std::max(end, start), range_end);
  }
}

void KnownBytes::clear() {
  ranges_.clear();
  total_ = 0;
}

void know(CUdeviceptr address, const void* bytes, uint64_t size, Origin origin) {
  if (KnownBytes* owner = owner_of(address)) owner->put(address, bytes, size, origin);
}

bool known(CUdeviceptr address, void* out, uint64_t size, Origin least) {
  const KnownBytes* owner = owner_of(address);
  return owner && !owner->empty() && owner->get(address, out, size, least);
}

void forget(CUdeviceptr address, uint64_t size) {
  if (KnownBytes* owner = owner_of(address)) owner->erase(address, size);
}

void forget_all() {
  for (const auto& device : machine().devices) device->known.clear();
}

void copy_known(CUdeviceptr target, CUdeviceptr source, uint64_t size) {
  std::vector<char> bytes(size <= KnownBytes::kLargest ? size : 0);
  for (const Origin origin : {Origin::kCollective, Origin::kHost})
    if (!bytes.empty() && known(source, bytes.data(), size, origin))
      return know(target, bytes.data(), size, origin);
  forget(target, size);
}

}  // namespace spillway::simulator
