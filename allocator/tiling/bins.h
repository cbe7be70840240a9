// Holes by size: 32 sub-bins to each power of two, found by two bitmaps; best fit inside a bin.
//
// Thread-safety: guarded by the heap's lock. Ownership: none; blocks are linked through their own fields.
#pragma once
#include <bit>
#include <cstdint>

#include "allocator/tiling/block.h"

namespace spillway {

class Bins {
 public:
  void insert(Block* hole) {
    const unsigned bin = bin_of(hole->size);
    hole->bin = static_cast<uint16_t>(bin);
    hole->bin_previous = nullptr;
    hole->bin_next = heads_[bin];
    if (heads_[bin] != nullptr) heads_[bin]->bin_previous = hole;
    heads_[bin] = hole;
    sub_[bin / kSub] |= 1u << (bin % kSub);
    top_ |= uint64_t{1} << (bin / kSub);
  }

  void remove(Block* hole) {
    const unsigned bin = hole->bin;
    if (hole->bin_next != nullptr) hole->bin_next->bin_previous = hole->bin_previous;
    if (hole->bin_previous != nullptr) {
      hole->bin_previous->bin_next = hole->bin_next;
      return;
    }
    heads_[bin] = hole->bin_next;
    if (heads_[bin] != nullptr) return;
    sub_[bin / kSub] &= ~(1u << (bin % kSub));
    if (sub_[bin / kSub] == 0) top_ &= ~(uint64_t{1} << (bin / kSub));
  }

  // The smallest hole of at least `size`, or null.
  Block* best(uint64_t size) const {
    unsigned bin = bin_of(size);
    if (Block* hole = smallest(bin, size)) return hole;
    bin = next_used(bin);
    return bin == kBins ? nullptr : smallest(bin, size);
  }

  Block* largest() const {
    if (top_ == 0) return nullptr;
    const unsigned level = 63 - std::countl_zero(top_);
    Block* found = nullptr;
    for (Block* hole = heads_[level * kSub + (31 - std::countl_zero(sub_[level]))]; hole;
         hole = hole->bin_next)
      if (found == nullptr || hole->size > found->size) found = hole;
    return found;
  }

  // Calls `visit` for each hole that may have at least `size` bytes.
  template <typename Visit>
  void each(uint64_t size, Visit visit) const {
    for (unsigned bin = bin_of(size); bin != kBins; bin = next_used(bin))
      for (Block *hole = heads_[bin], *next; hole != nullptr; hole = next) {
        next = hole->bin_next;
        if (hole->size >= size) visit(hole);
      }
  }

  static unsigned bin_of(uint64_t size) {
    const uint64_t units = size / kUnitBytes;
    if (units < kSub) return static_cast<unsigned>(units);
    const unsigned log = 63 - static_cast<unsigned>(std::countl_zero(units));
    return (log - 4) * kSub + static_cast<unsigned>((units >> (log - 5)) & (kSub - 1));
  }

 private:
  static constexpr unsigned kSub = 32, kLevels = 44, kBins = kSub * kLevels;  // up to 2^56 bytes

  Block* smallest(unsigned bin, uint64_t size) const {
    Block* found = nullptr;
    for (Block* hole = heads_[bin]; hole != nullptr; hole = hole->bin_next) {
      if (hole->size == size) return hole;
      if (hole->size > size && (found == nullptr || hole->size < found->size)) found = hole;
    }
    return found;
  }

  unsigned next_used(unsigned bin) const {
    const unsigned level = bin / kSub, sub = bin % kSub;
    const uint32_t rest = sub == kSub - 1 ? 0 : sub_[level] & (~0u << (sub + 1));
    if (rest != 0) return level * kSub + static_cast<unsigned>(std::countr_zero(rest));
    const uint64_t levels = top_ & (~uint64_t{0} << (level + 1));
    if (levels == 0) return kBins;
    const unsigned found = static_cast<unsigned>(std::countr_zero(levels));
    return found * kSub + static_cast<unsigned>(std::countr_zero(sub_[found]));
  }

  uint64_t top_ = 0;
  uint32_t sub_[kLevels] = {};
  Block* heads_[kBins] = {};
};

}  // namespace spillway
