// What lies behind an arena's addresses: handles, each of one page or several.
#include <algorithm>

#include "allocator/tiling/arena.h"

namespace spillway {

void Arena::set_pages(AddressRange range, CUmemGenericAllocationHandle handle) {
  Segment& segment = *segment_of(range.begin);
  const uint64_t begin = (range.begin - segment.range.begin) / page_bytes_;
  const uint64_t end = (range.end - segment.range.begin) / page_bytes_;
  if (end > segment.pages.size()) segment.pages.resize(end);
  std::fill(segment.pages.begin() + static_cast<std::ptrdiff_t>(begin),
            segment.pages.begin() + static_cast<std::ptrdiff_t>(end), handle);
}

void set_pages(Arena& arena, uint64_t address, std::span<const driver::Page> pages) {
  for (const driver::Page& page : pages) {
    arena.set_pages({address, address + page.bytes}, page.handle);
    address += page.bytes;
  }
}

CUmemGenericAllocationHandle Arena::page(uint64_t address) const {
  const Segment& segment = *segment_of(address);
  const uint64_t index = (address - segment.range.begin) / page_bytes_;
  return index < segment.pages.size() ? segment.pages[index] : 0;
}

AddressRange Arena::handle_at(uint64_t address) const {
  const Segment& segment = *segment_of(address);
  const std::vector<CUmemGenericAllocationHandle>& pages = segment.pages;
  uint64_t first = (address - segment.range.begin) / page_bytes_, last = first + 1;
  if (first < pages.size() && is_page(pages[first])) {
    while (first != 0 && pages[first - 1] == pages[last - 1]) --first;
    while (last < pages.size() && pages[last] == pages[first]) ++last;
  }
  return {segment.range.begin + first * page_bytes_, segment.range.begin + last * page_bytes_};
}

std::vector<driver::Page> handles_in(const Arena& arena, AddressRange range) {
  std::vector<driver::Page> handles;
  while (range.begin < range.end) {
    const AddressRange handle = arena.handle_at(range.begin);
    handles.push_back({arena.page(range.begin), handle.bytes()});
    range.begin = handle.end;
  }
  return handles;
}

AddressRange Arena::whole_handles(AddressRange range) const {
  uint64_t begin = (range.begin + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  uint64_t end = range.end / page_bytes_ * page_bytes_;
  if (begin >= end) return {begin, begin};
  if (const AddressRange first = handle_at(begin); first.begin != begin) begin = first.end;
  if (const AddressRange last = handle_at(end - page_bytes_); last.end != end) end = last.begin;
  return {begin, std::max(begin, end)};
}

AddressRange last_covering(const Arena& arena, AddressRange whole, uint64_t bytes) {
  if (bytes == 0) return {whole.end, whole.end};
  if (bytes >= whole.bytes()) return whole;
  return {arena.handle_at(whole.end - bytes).begin, whole.end};
}

AddressRange last_within(const Arena& arena, AddressRange whole, uint64_t bytes) {
  if (bytes >= whole.bytes()) return whole;
  if (bytes == 0) return {whole.end, whole.end};
  const uint64_t begin = whole.end - bytes;
  const AddressRange handle = arena.handle_at(begin);
  return {handle.begin == begin ? begin : handle.end, whole.end};
}

}  // namespace spillway
