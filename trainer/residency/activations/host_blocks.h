// Memory of the host, or of peers, for copies that is used again and again: making page-locked memory takes
// longer than a copy.
//
// Thread-safety: any thread. Ownership: a block is its holder's until it is given back. Errors:
// c10::OutOfMemoryError of home_tensor. Units: bytes.
#pragma once
#include <map>

#include "base/mutex.h"
#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

class HostBlocks {
 public:
  HostBlocks() = default;
  HostBlocks(const HostBlocks&) = delete;
  ~HostBlocks();

  struct Block {
    at::Tensor memory;                      // of bytes
    CopyStream::Mark used_until = nullptr;  // who writes it, writes behind this
  };

  // One that is free and at most twice as large, the smallest of them; else a new one of just that size.
  Block take(size_t bytes, at::Device device, at::Device home);
  void give_back(Block block);
  // Frees those that nobody holds, each when its copies are done.
  void free_unused();
  // Of all blocks, held and free.
  uint64_t bytes() const;

 private:
  using Key = std::pair<int, size_t>;  // the home's index, -1 of the host; bytes
  static Key key_of(const at::Tensor& memory) {
    return {memory.is_cuda() ? memory.device().index() : -1, memory.nbytes()};
  }

  mutable Mutex<LockOrder::kLeaf> mutex_;
  std::multimap<Key, Block> free_ SPILLWAY_GUARDED_BY(mutex_);
  uint64_t bytes_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway::trainer
