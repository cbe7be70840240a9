// Ranges of addresses: disjoint, those that touch joined.
//
// Thread-safety: none. Whatever is added or removed, ranges that are empty or wrap around are passed over.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace spillway::tools {

class AddressRanges {
 public:
  void add(uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ends_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_[begin] = end;
  }

  void remove(uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second > begin) --next;
    while (next != ends_.end() && next->first < end) {
      const auto [from, to] = *next;
      next = ends_.erase(next);
      if (from < begin) ends_[from] = begin;
      if (to > end) ends_[end] = to;
    }
  }

  // How many bytes of [begin, end) are in them.
  uint64_t bytes_within(uint64_t begin, uint64_t end) const {
    if (begin >= end) return 0;
    uint64_t bytes = 0;
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin()) --next;
    for (; next != ends_.end() && next->first < end; ++next)
      if (next->second > begin) bytes += std::min(next->second, end) - std::max(next->first, begin);
    return bytes;
  }

  const std::map<uint64_t, uint64_t>& ends() const { return ends_; }  // by where each begins

 private:
  std::map<uint64_t, uint64_t> ends_;
};

}  // namespace spillway::tools
