#include "trainer/serve/batching/block_pool.h"

#include <numeric>

namespace spillway::trainer::serve {

BlockPool::BlockPool(uint32_t blocks) : size_(blocks), free_(blocks) {
  std::iota(free_.rbegin(), free_.rend(), 0u);
}

std::optional<uint32_t> BlockPool::take() {
  if (free_.empty()) return std::nullopt;
  const uint32_t block = free_.back();
  free_.pop_back();
  return block;
}

}  // namespace spillway::trainer::serve
