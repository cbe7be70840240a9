// The addresses that must stay where they are, as they were at one moment: copied once, asked for many
// blocks.
//
// Thread-safety: a value. Units: bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace spillway {

class Pins {
 public:
  // REQUIRES: `address` is not below that of the range before.
  void add(uint64_t address, uint64_t bytes) {
    const uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
    ranges_.push_back({address, ranges_.empty() ? end : std::max(end, ranges_.back().farthest_end)});
  }
  // Whether a range holds a byte of [address, address + bytes).
  bool cover(uint64_t address, uint64_t bytes) const {
    const auto behind = std::lower_bound(ranges_.begin(), ranges_.end(), address + bytes,
                                         [](const Range& range, uint64_t end) { return range.begin < end; });
    return behind != ranges_.begin() && std::prev(behind)->farthest_end > address;
  }

 private:
  struct Range {
    uint64_t begin, farthest_end;  // of all ranges up to this one
  };
  std::vector<Range> ranges_;
};

}  // namespace spillway
