// Pages that other processes map, each with its file descriptor.
//
// Thread-safety: guarded by the heap's lock. Ownership: of the descriptors, until the last shared block on
// their page is freed. Invariant: a page is here exactly as long as a live shared block lies on it.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/sharing/shared.h"
#include "allocator/tiling/tiling.h"
#include "driver/mapping.h"

namespace spillway {

// The pages under a block, and where it begins in the first of them; none in an allocation of the driver's,
// where the offset is that in the allocation.
std::vector<driver::Page> pages_of(const Arena& arena, const Block* block, uint64_t* offset);

class Exports {
 public:
  struct Export {
    int descriptor = -1;
    uint64_t serial = 0;
    unsigned blocks = 0;  // live ones on the page that other processes may map
  };
  using Map = std::unordered_map<CUmemGenericAllocationHandle, Export>;

  bool contains(CUmemGenericAllocationHandle page) const { return exports_.contains(page); }
  // All pages have their descriptors, in `made` where they are new: the block is shared.
  void add(Block* block, std::span<const driver::Page> pages, Map& made, SharedBlock* out);
  // The descriptors that nobody needs any more when this block is free; the caller closes them.
  std::vector<int> withdraw(const Tiling& tiling, const Block* block);
  // A descriptor of its own for who asks; else -1.
  int duplicate(uint64_t serial) const;
  void close_all();
  // "" or what is wrong.
  std::string check(const Tiling& tiling) const;

 private:
  Map exports_;
};

}  // namespace spillway
