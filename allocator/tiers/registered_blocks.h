// Blocks of which the program says when it uses them: outside of that their memory may be taken away.
//
// Thread-safety: guarded by the heap's lock. Errors: none. Units: bytes.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "allocator/tiling/block.h"

namespace spillway {

class RegisteredBlocks {
 public:
  struct Registered {
    uint64_t bytes = 0, uses = 0;
  };
  // False: it is registered already.
  [[nodiscard]] bool add(Block* block, uint64_t bytes) {
    if (!blocks_.try_emplace(block, Registered{bytes, 0}).second) return false;
    block->shared |= kRegistered;
    return true;
  }
  void remove(Block* block) {
    blocks_.erase(block);
    block->shared = static_cast<uint8_t>(block->shared & ~kRegistered);
  }
  // Null: it is not registered.
  Registered* find(const Block* block) {
    const auto found = blocks_.find(block);
    return found == blocks_.end() ? nullptr : &found->second;
  }
  const Registered* find(const Block* block) const {
    return const_cast<RegisteredBlocks*>(this)->find(block);
  }

 private:
  std::unordered_map<const Block*, Registered> blocks_;
};

}  // namespace spillway
