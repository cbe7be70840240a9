#include "trainer/residency/activations/host_blocks.h"

#include <utility>

#include "trainer/residency/homes/homes.h"

namespace spillway::trainer {

HostBlocks::~HostBlocks() {
  try {
    free_unused();
    // NOLINTNEXTLINE(bugprone-empty-catch)
  } catch (const std::exception&) {  // the device is lost, and its copies with it
  }
}

HostBlocks::Block HostBlocks::take(size_t bytes, at::Device device, at::Device home) {
  {
    const Locked lock(mutex_);
    const int index = home.is_cuda() ? home.index() : -1;
    const auto found = free_.lower_bound({index, bytes});
    if (found != free_.end() && found->first <= Key{index, 2 * bytes}) return free_.extract(found).mapped();
  }
  Block block{home_tensor({static_cast<int64_t>(bytes)}, at::kByte, device, home)};
  const Locked lock(mutex_);
  bytes_ += bytes;
  return block;
}

void HostBlocks::give_back(Block block) {
  const Locked lock(mutex_);
  const Key key = key_of(block.memory);
  free_.emplace(key, std::move(block));
}

void HostBlocks::free_unused() {
  std::multimap<Key, Block> unused;
  {
    const Locked lock(mutex_);
    unused.swap(free_);
    for (const auto& [key, block] : unused) bytes_ -= key.second;
  }
  for (const auto& [key, block] : unused) wait_on_host(block.used_until);
}

uint64_t HostBlocks::bytes() const {
  const Locked lock(mutex_);
  return bytes_;
}

}  // namespace spillway::trainer
