// What each place of the program holds of a device: the live blocks whose place was taken, and by their sizes
// the others.
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
#include "allocator/accounting/sites_by_size.h"
#include "allocator/tiling/block.h"

namespace spillway {

class Holders {
 public:
  // `site` 0: it has no place. `bytes`: what the block stands for. `order`: of its allocation.
  void add(const Block* block, uint64_t site, uint64_t bytes, uint64_t order) {
    blocks_[block] = {block->tag, site, bytes, order};
  }
  void remove(const Block* block) { blocks_.erase(block); }
  bool contains(const Block* block) const { return blocks_.contains(block); }

  struct Held {
    uint64_t requested = 0, site = 0;
    uint64_t stands_for = 0;  // bytes; 0: its place was not taken
    uint64_t order = 0;
  };
  Held of(const Block* block) const {
    const auto known = blocks_.find(block);
    return known == blocks_.end() ? Held{.requested = block->tag} : known->second;
  }

  // By site, what holds most first, of all the live blocks. Needs no lock.
  static std::vector<SiteHolding> sums(const std::vector<Held>& blocks) {
    SitesBySize sites;
    for (const Held& held : blocks)
      if (held.stands_for != 0) sites.know(held.requested, held.site, stands_for_blocks(held));
    std::map<uint64_t, SiteHolding> by_site;
    for (const Held& held : blocks) {
      const uint64_t site = held.stands_for != 0 ? held.site : sites.deal(held.requested).value_or(0);
      if (site == 0) continue;
      SiteHolding& sum = by_site.try_emplace(site, SiteHolding{site, 0, 0, UINT64_MAX}).first->second;
      sum.bytes += held.requested;
      ++sum.blocks;
      if (held.stands_for != 0) sum.oldest_order = std::min(sum.oldest_order, held.order);
    }
    std::vector<SiteHolding> sums;
    sums.reserve(by_site.size());
    for (const auto& [site, sum] : by_site) sums.push_back(sum);
    std::stable_sort(sums.begin(), sums.end(),
                     [](const SiteHolding& a, const SiteHolding& b) { return a.bytes > b.bytes; });
    return sums;
  }

 private:
  static double stands_for_blocks(const Held& held) {
    return static_cast<double>(held.stands_for) / static_cast<double>(std::max<uint64_t>(held.requested, 1));
  }

  std::unordered_map<const Block*, Held> blocks_;
};

}  // namespace spillway
