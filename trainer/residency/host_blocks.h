// Host memory for copies that is used again and again: making page-locked memory takes longer than a copy.
//
// Thread-safety: any thread. Ownership: a block is its holder's until it is given back. Errors:
// c10::OutOfMemoryError of host_tensor. Units: bytes.
#pragma once
#include <map>

#include "base/mutex.h"
#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

class HostBlocks {
 public:
  struct Block {
    at::Tensor memory;                      // of bytes
    CopyStream::Mark used_until = nullptr;  // who writes it, writes behind this
  };

  // One that is free and at most twice as large, the smallest of them; else a new one of just that size.
  Block take(size_t bytes, at::Device device);
  void give_back(Block block);
  // Frees those that nobody holds, each when its copies are done.
  void free_unused();
  // Of all blocks, held and free.
  uint64_t bytes() const;

 private:
  mutable Mutex<LockOrder::kLeaf> mutex_;
  std::multimap<size_t, Block> free_ SPILLWAY_GUARDED_BY(mutex_);
  uint64_t bytes_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway::trainer
