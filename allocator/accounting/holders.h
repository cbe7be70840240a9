// What each place of the program holds of a device: the live blocks whose place is known.
//
// Thread-safety: none; the heap's lock guards it. Ownership: none; a block leaves before it is freed. Errors:
// none. Units: bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "allocator/accounting/site.h"
#include "allocator/tiling/block.h"

namespace spillway {

class Holders {
 public:
  // `bytes`: what the block stands for. `order`: of its allocation.
  void add(const Block* block, uint64_t site, uint64_t bytes, uint64_t order) {
    blocks_[block] = {site, bytes, order};
  }
  void remove(const Block* block) { blocks_.erase(block); }
  bool contains(const Block* block) const { return blocks_.contains(block); }

  struct Held {
    uint64_t site = 0, bytes = 0, order = 0;
  };
  std::vector<Held> copy() const {
    std::vector<Held> held;
    held.reserve(blocks_.size());
    for (const auto& [block, one] : blocks_) held.push_back(one);
    return held;
  }

  // By site, what holds most first. Needs no lock.
  static std::vector<SiteHolding> sums(const std::vector<Held>& blocks) {
    std::map<uint64_t, SiteHolding> by_site;
    for (const Held& held : blocks) {
      const auto [sum, is_new] = by_site.try_emplace(held.site, SiteHolding{held.site, 0, 0, held.order});
      sum->second.bytes += held.bytes;
      ++sum->second.blocks;
      sum->second.oldest_order = std::min(sum->second.oldest_order, held.order);
    }
    std::vector<SiteHolding> sums;
    sums.reserve(by_site.size());
    for (const auto& [site, sum] : by_site) sums.push_back(sum);
    std::stable_sort(sums.begin(), sums.end(),
                     [](const SiteHolding& a, const SiteHolding& b) { return a.bytes > b.bytes; });
    return sums;
  }

 private:
  std::unordered_map<const Block*, Held> blocks_;
};

}  // namespace spillway
