// From the address of a live block to the block, in constant time.
//
// A root of 16 GiB pieces, a leaf entry for each 2 MiB, and behind it a table with a slot for every unit
// (small arenas) or every 64 KiB (large arenas, whose blocks are larger than that, so two never begin in the
// same slot). Thread-safety: `find` takes no lock; `set` and `clear` are called under the heap's lock;
// `prepare` from anywhere.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "allocator/tiling/block.h"

namespace spillway {

class PageMap {
 public:
  static constexpr unsigned kAddressBits = 47;

  PageMap() = default;
  ~PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // Makes room for blocks in [address, address + bytes). False for addresses out of reach.
  bool prepare(uint64_t address, uint64_t bytes, bool small);

  Block* find(uint64_t address) const {
    std::atomic<Block*>* slot = slot_of(address);
    return slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
  }
  void set(uint64_t address, Block* block) { slot_of(address)->store(block, std::memory_order_release); }
  void clear(uint64_t address) { slot_of(address)->store(nullptr, std::memory_order_release); }

  // The last live block that begins in [low, address].
  Block* find_below(uint64_t address, uint64_t low) const;

 private:
  static constexpr unsigned kPageShift = 21, kLeafShift = 34, kUnitShift = 9, kLargeShift = 16;
  static constexpr uint64_t kLeafSize = uint64_t{1} << (kLeafShift - kPageShift);
  static constexpr uint64_t kRootSize = uint64_t{1} << (kAddressBits - kLeafShift);
  static constexpr uintptr_t kSmallTag = 1;
  struct Leaf {
    std::array<std::atomic<uintptr_t>, kLeafSize> tables{};
  };

  static uint64_t table_size(bool small) { return kPageBytes >> (small ? kUnitShift : kLargeShift); }

  std::atomic<Block*>* slot_of(uint64_t address) const {
    const uint64_t root = address >> kLeafShift;
    if (root >= kRootSize) [[unlikely]]
      return nullptr;
    const Leaf* leaf = root_[root].load(std::memory_order_acquire);
    if (leaf == nullptr) [[unlikely]]
      return nullptr;
    const uintptr_t entry =
        leaf->tables[(address >> kPageShift) & (kLeafSize - 1)].load(std::memory_order_acquire);
    if (entry == 0) [[unlikely]]
      return nullptr;
    const unsigned shift = (entry & kSmallTag) != 0 ? kUnitShift : kLargeShift;
    // The tag lies in the pointer's low bit.  NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* table = reinterpret_cast<std::atomic<Block*>*>(entry & ~kSmallTag);
    return table + ((address & (kPageBytes - 1)) >> shift);
  }

  std::array<std::atomic<Leaf*>, kRootSize> root_{};
};

}  // namespace spillway
