#include "allocator/tiling/page_map.h"

namespace spillway {

PageMap::~PageMap() {
  for (auto& entry : root_) {
    Leaf* leaf = entry.load();
    if (leaf == nullptr) continue;
    for (auto& table : leaf->tables)
      delete[] reinterpret_cast<std::atomic<Block*>*>(table.load() & ~kSmallTag);
    delete leaf;
  }
}

bool PageMap::prepare(uint64_t address, uint64_t bytes, bool small) {
  for (uint64_t page = address; page < address + bytes; page += kPageBytes) {
    if (page >> kAddressBits != 0) return false;
    std::atomic<Leaf*>& root = root_[page >> kLeafShift];
    Leaf* leaf = root.load(std::memory_order_acquire);
    if (leaf == nullptr) {
      auto* made = new Leaf();
      if (root.compare_exchange_strong(leaf, made, std::memory_order_acq_rel))
        leaf = made;
      else
        delete made;
    }
    std::atomic<uintptr_t>& entry = leaf->tables[(page >> kPageShift) & (kLeafSize - 1)];
    uintptr_t seen = entry.load(std::memory_order_acquire);
    if (seen != 0) continue;
    auto* table = new std::atomic<Block*>[table_size(small)]();
    const uintptr_t tagged = reinterpret_cast<uintptr_t>(table) | (small ? kSmallTag : 0);
    if (!entry.compare_exchange_strong(seen, tagged, std::memory_order_acq_rel)) delete[] table;
  }
  return true;
}

Block* PageMap::find_below(uint64_t address, uint64_t low) const {
  while (address >= low) {
    std::atomic<Block*>* slot = slot_of(address);
    const uint64_t page = address & ~(kPageBytes - 1);
    if (slot != nullptr) {
      for (std::atomic<Block*>* first = slot_of(page); slot >= first; --slot) {
        Block* block = slot->load(std::memory_order_acquire);
        if (block != nullptr && block->address <= address) return block->address < low ? nullptr : block;
      }
    }
    if (page == 0) break;
    address = page - 1;
  }
  return nullptr;
}

}  // namespace spillway
