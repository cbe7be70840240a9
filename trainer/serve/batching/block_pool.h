// The blocks of a cache of keys and values: which are free. A block has room for kBlockTokens tokens of one
// sequence, in every layer.
//
// Thread-safety: one thread. Errors: none; nothing when no block is free.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace spillway::trainer::serve {

inline constexpr uint32_t kBlockTokens = 16;

constexpr uint64_t blocks_for(uint64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);

  uint32_t size() const { return size_; }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  // In constant time, each.
  std::optional<uint32_t> take();
  void give_back(uint32_t block) { free_.push_back(block); }

 private:
  const uint32_t size_;
  std::vector<uint32_t> free_;  // the last one goes first
};

}  // namespace spillway::trainer::serve
