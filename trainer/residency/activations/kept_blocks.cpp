#include "trainer/residency/activations/kept_blocks.h"

namespace spillway::trainer {

KeptBlocks::~KeptBlocks() {
  for (HostBlocks::Block& block : taken_) blocks_.give_back(std::move(block));
}

void KeptBlocks::write(CopyStream& by, const Copies& copies) {
  for (const uint64_t bytes : bytes_) taken_.push_back(blocks_.take(bytes, device_, home_));
  for (const HostBlocks::Block& block : taken_) by.wait_for(block.used_until);
  copy(copies);
}

// The device's stream waits for what was written: a layer leaves its device behind those copies.
void KeptBlocks::read(CopyStream&, const Copies& copies) {
  copy(copies);
}

void KeptBlocks::copy(const Copies& copies) {
  std::vector<at::Tensor> memory;
  memory.reserve(taken_.size());
  for (const HostBlocks::Block& block : taken_) memory.push_back(block.memory);
  const CopyStream::Mark mark = copies(memory);
  for (HostBlocks::Block& block : taken_) block.used_until = mark;
}

}  // namespace spillway::trainer
