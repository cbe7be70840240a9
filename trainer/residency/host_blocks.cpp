#include "trainer/residency/host_blocks.h"

#include <utility>

#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {

HostBlocks::Block HostBlocks::take(size_t bytes, at::Device device) {
  {
    const Locked lock(mutex_);
    const auto found = free_.lower_bound(bytes);
    if (found != free_.end() && found->first <= 2 * bytes) return free_.extract(found).mapped();
  }
  Block block{host_tensor({static_cast<int64_t>(bytes)}, at::kByte, device)};
  const Locked lock(mutex_);
  bytes_ += bytes;
  return block;
}

void HostBlocks::give_back(Block block) {
  const Locked lock(mutex_);
  const size_t bytes = block.memory.nbytes();
  free_.emplace(bytes, std::move(block));
}

void HostBlocks::free_unused() {
  std::multimap<size_t, Block> unused;
  {
    const Locked lock(mutex_);
    unused.swap(free_);
    for (const auto& [size, block] : unused) bytes_ -= size;
  }
  for (const auto& [size, block] : unused) wait_on_host(block.used_until);
}

uint64_t HostBlocks::bytes() const {
  const Locked lock(mutex_);
  return bytes_;
}

}  // namespace spillway::trainer
