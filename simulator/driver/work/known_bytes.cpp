#include "simulator/driver/work/known_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "simulator/driver/machine/state.h"

namespace spillway::simulator {
namespace {

constexpr uint64_t kLittle = uint64_t{16} << 10;

// Null: there is nothing to know.
KnownBytes* known_bytes_of(CUdeviceptr address) {
  Machine& sim = machine();
  if (sim.config.compute || !sim.space.contains(address)) return nullptr;
  const auto mapping = sim.space.mapping_of(address);
  if (mapping == sim.space.mappings().end() || !mapping->second.page->device) return nullptr;
  return &mapping->second.page->device->known;
}

}  // namespace

void KnownBytes::make_room() {
  std::erase_if(ranges_, [](const auto& range) { return range.second.size() > kLittle; });
  total_ = 0;
  for (const auto& [address, bytes] : ranges_) total_ += bytes.size();
  if (total_ > kMost / 2) clear();
}

void KnownBytes::put(CUdeviceptr address, const void* bytes, uint64_t size) {
  erase(address, size);
  if (size == 0 || size > kLargestTold) return;
  if (total_ + size > kMost) make_room();
  const auto* begin = static_cast<const char*>(bytes);
  ranges_.emplace(address, std::vector<char>(begin, begin + size));
  total_ += size;
}

bool KnownBytes::get(CUdeviceptr address, void* out, uint64_t size) const {
  auto range = ranges_.upper_bound(address);
  if (range != ranges_.begin()) --range;
  const CUdeviceptr end = address + size;
  CUdeviceptr next = address;
  for (; range != ranges_.end() && range->first <= next && next < end; ++range) {
    const CUdeviceptr range_end = range->first + range->second.size();
    if (range_end <= next) continue;
    const uint64_t count = std::min(range_end, end) - next;
    std::memcpy(static_cast<char*>(out) + (next - address), range->second.data() + (next - range->first),
                count);
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
    const CUdeviceptr start = range->first, range_end = start + range->second.size();
    if (range_end <= address) {
      ++range;
      continue;
    }
    const std::vector<char> bytes = std::move(range->second);
    range = ranges_.erase(range);
    total_ -= bytes.size();
    const auto keep = [&](CUdeviceptr from, CUdeviceptr to) {
      if (from >= to) return;
      ranges_.emplace(from, std::vector<char>(bytes.begin() + static_cast<ptrdiff_t>(from - start),
                                              bytes.begin() + static_cast<ptrdiff_t>(to - start)));
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

void know(CUdeviceptr address, const void* bytes, uint64_t size) {
  if (KnownBytes* owner = known_bytes_of(address)) owner->put(address, bytes, size);
}

bool find_known(CUdeviceptr address, void* out, uint64_t size) {
  const KnownBytes* owner = known_bytes_of(address);
  return owner && !owner->empty() && owner->get(address, out, size);
}

void forget(CUdeviceptr address, uint64_t size) {
  if (KnownBytes* owner = known_bytes_of(address)) owner->erase(address, size);
}

void forget_written() {
  if (confine(0) > 0) return;
  for (const auto& device : machine().devices) device->known.clear();
}

int confine(int change) {
  thread_local int depth = 0;
  return depth += change;
}

uint64_t& submitted_kernels() {
  thread_local uint64_t count = 0;
  return count;
}

std::optional<Answer>& next_answer() {
  thread_local std::optional<Answer> answer;
  return answer;
}

void copy_known(CUdeviceptr target, CUdeviceptr source, uint64_t size) {
  std::vector<char> bytes(size <= KnownBytes::kLargestTold ? size : 0);
  if (!bytes.empty() && find_known(source, bytes.data(), size)) return know(target, bytes.data(), size);
  forget(target, size);
}

}  // namespace spillway::simulator
